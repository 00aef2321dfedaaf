#include "backend/vulkan/api.h"

#include "base/shared_library.h"

VULKAN_HPP_DEFAULT_DISPATCH_LOADER_DYNAMIC_STORAGE

namespace zinc::vulkan {
namespace {

Result<vk::Instance> make_instance() {
  const Result<SharedLibrary> loader = SharedLibrary::open("libvulkan.so.1");
  if (!loader.ok()) {
    return fail(ErrorCode::not_found,
                "the Vulkan loader libvulkan.so.1 is not installed (Debian: libvulkan1 and the driver of your GPU, "
                "mesa-vulkan-drivers for AMD and Intel): {}",
                loader.error().message);
  }
  const auto get = reinterpret_cast<PFN_vkGetInstanceProcAddr>(loader.value().find("vkGetInstanceProcAddr"));
  if (!get) return fail(ErrorCode::unsupported, "libvulkan.so.1 has no vkGetInstanceProcAddr: it is damaged");
  auto& functions = VULKAN_HPP_DEFAULT_DISPATCHER;
  functions.init(get);
  const vk::ApplicationInfo app{.pApplicationName = "zinc", .apiVersion = VK_API_VERSION_1_3};
  const auto [code, instance] = vk::createInstance({.pApplicationInfo = &app});
  if (code != vk::Result::eSuccess) {
    return fail(ErrorCode::unsupported,
                "cannot create a Vulkan instance: {}; is a driver installed? (see vulkaninfo --summary)",
                vk::to_string(code));
  }
  functions.init(instance);
  if (!functions.vkWaitSemaphores) {  // of Vulkan 1.2, as the newest functions that this backend calls
    return fail(ErrorCode::unsupported, "the Vulkan loader has no vkWaitSemaphores; Vulkan 1.2 or newer is required");
  }
  return instance;
}

}  // namespace

Result<vk::Instance> load_instance() {
  static const Result<vk::Instance> instance = make_instance();
  return instance;
}

}  // namespace zinc::vulkan

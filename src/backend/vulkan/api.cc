#include "backend/vulkan/api.h"

#include <algorithm>
#include <array>

#include "base/shared_library.h"

namespace zinc::vulkan {
namespace {

constexpr uint32_t kApiVersion = VK_API_VERSION_1_3;

Result<InstanceApi> make_instance() {
  const Result<SharedLibrary> loader = SharedLibrary::open("libvulkan.so.1");
  if (!loader.ok()) {
    return fail(ErrorCode::not_found,
                "the Vulkan loader libvulkan.so.1 is not installed (Debian: libvulkan1 and the driver of your GPU, "
                "mesa-vulkan-drivers for AMD and Intel): {}",
                loader.error().message);
  }
  InstanceApi api;
  api.get = reinterpret_cast<PFN_vkGetInstanceProcAddr>(loader.value().find("vkGetInstanceProcAddr"));
  if (!api.get) return fail(ErrorCode::unsupported, "libvulkan.so.1 has no vkGetInstanceProcAddr: it is damaged");
  const auto create = reinterpret_cast<PFN_vkCreateInstance>(api.get(nullptr, "vkCreateInstance"));
  VkApplicationInfo app{};
  app.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO;
  app.pApplicationName = "zinc";
  app.apiVersion = kApiVersion;
  VkInstanceCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO;
  info.pApplicationInfo = &app;
  const VkResult created = create ? create(&info, nullptr, &api.instance) : VK_ERROR_INITIALIZATION_FAILED;
  if (created != VK_SUCCESS) {
    return fail(ErrorCode::unsupported,
                "cannot create a Vulkan instance: {}; is a driver installed? (see vulkaninfo --summary)",
                result_name(created));
  }
#define X(name)                                                                 \
  api.name = reinterpret_cast<PFN_vk##name>(api.get(api.instance, "vk" #name)); \
  if (!api.name) return fail(ErrorCode::unsupported, "the Vulkan loader has no vk" #name "; Vulkan 1.3 is required");
  ZINC_VULKAN_INSTANCE_FUNCTIONS(X)
#undef X
  return api;
}

}  // namespace

Result<const InstanceApi*> load_instance() {
  static const Result<InstanceApi> instance = make_instance();
  if (!instance.ok()) return instance.error();
  return &instance.value();
}

Result<DeviceApi> load_device(const InstanceApi& instance, VkDevice device) {
  DeviceApi api;
#define X(name)                                                                              \
  api.name = reinterpret_cast<PFN_vk##name>(instance.GetDeviceProcAddr(device, "vk" #name)); \
  if (!api.name) return fail(ErrorCode::unsupported, "the Vulkan driver has no vk" #name "; Vulkan 1.3 is required");
  ZINC_VULKAN_DEVICE_FUNCTIONS(X)
#undef X
  return api;
}

std::string_view result_name(VkResult code) {
  struct Row {
    VkResult code;
    std::string_view name;
  };
  static constexpr std::array<Row, 11> kRows = {{
      {VK_SUCCESS, "success"},
      {VK_NOT_READY, "not ready"},
      {VK_TIMEOUT, "timeout"},
      {VK_ERROR_OUT_OF_HOST_MEMORY, "out of host memory"},
      {VK_ERROR_OUT_OF_DEVICE_MEMORY, "out of device memory"},
      {VK_ERROR_INITIALIZATION_FAILED, "initialization failed"},
      {VK_ERROR_DEVICE_LOST, "device lost"},
      {VK_ERROR_FEATURE_NOT_PRESENT, "feature not present"},
      {VK_ERROR_INCOMPATIBLE_DRIVER, "no compatible driver"},
      {VK_ERROR_TOO_MANY_OBJECTS, "too many objects"},
      {VK_ERROR_UNKNOWN, "unknown error"},
  }};
  const auto* row = std::ranges::find(kRows, code, &Row::code);
  return row == kRows.end() ? "unknown error" : row->name;
}

}  // namespace zinc::vulkan

#include "cli/hub_library.h"

#include <gtest/gtest.h>

#include <fstream>
#include <future>

#include "tests/support/hub_fixture.h"

namespace zinc {
namespace {

// A library with one known model that is not loaded: the engine "cannot be started".
class HubLibraryTest : public HubFixture {
 protected:
  HubLibraryTest()
      : library_(
            settings_, models_, [this] { return memory_; }, [this](auto&, auto&) { return load(); }) {
    const std::filesystem::path path = root_ / "tiny.gguf";
    std::ofstream(path, std::ios::binary) << model_;
    std::promise<void> done;
    library_.load_at_start("tiny", path.string(), {}, [&](const Status&) { done.set_value(); });
    done.get_future().wait();
    n_loads_ = 0;
    memory_.measure = [](const std::filesystem::path&) { return MemoryNeed{.bytes = 60, .limit_bytes = 80}; };
  }

  Result<std::unique_ptr<EngineThread>> load() {
    ++n_loads_;
    return fail(ErrorCode::unavailable, "the engine cannot be started");
  }
  ApiError activate(bool keep_others) {
    std::promise<ApiError> error;
    library_.activate("tiny", keep_others,
                      [&](const OrApiError<std::string>& response) { error.set_value(std::get<ApiError>(response)); });
    return error.get_future().get();
  }

  MemoryCapacity memory_;
  std::atomic<int> n_loads_ = 0;
  ModelList models_;
  HubLibrary library_;
};

TEST_F(HubLibraryTest, refuses_a_model_that_takes_more_than_the_memory_of_the_machine) {
  memory_.n_bytes = memory_.n_available = 59;
  const ApiError error = activate(/*keep_others=*/false);
  EXPECT_EQ(error.status, 400);
  EXPECT_NE(error.message.find("more than this machine has"), std::string::npos) << error.message;
  EXPECT_EQ(n_loads_, 0);
}

TEST_F(HubLibraryTest, keeps_loaded_models_only_if_the_engine_would_grant_the_memory_beside_them) {
  memory_.n_bytes = 100;
  memory_.n_available = 79;
  const ApiError error = activate(/*keep_others=*/true);
  EXPECT_EQ(error.status, 409);
  EXPECT_NE(error.message.find("together with the loaded models"), std::string::npos) << error.message;
  EXPECT_EQ(n_loads_, 0);
  memory_.n_available = 80;
  EXPECT_EQ(activate(/*keep_others=*/true).message, "the engine cannot be started");
  EXPECT_EQ(n_loads_, 1);
}

}  // namespace
}  // namespace zinc

// The messages between rank 0 and a worker: calls of the functions of Backend and its objects. A request is a
// RequestHeader and arguments, a reply a ReplyHeader and results, or the message of an error. Not all requests have a
// reply. Objects have ids that rank 0 chooses.
#pragma once

#include <cstdint>

#include "backend/step.h"
#include "base/blob.h"

namespace zinc::mpi {

enum class Call : uint32_t {
  leave,  // the last one
  open_file,
  close_file,
  open_device,
  without_memory,
  measure_peaks,
  clock_mhz,
  upload,
  allocate_cache,
  compile,
  destroy,  // any object
  copy_page,
  copy_state,
  prefault_pages,
  read_page,
  write_page,
  read_state,
  write_state,
  run_step,
  read_value,
  wait_until_prepared,
};

using ObjectId = uint32_t;

struct RequestHeader {
  Call call = Call::leave;
  ObjectId object = 0;
  uint64_t number = 0;
};

struct ReplyHeader {
  uint64_t number = 0;  // of the request
  bool has_failed = false;
  ErrorCode code = ErrorCode::io;
};

void write_step(const StepInputs& step, BlobWriter& out);
void write_output(const StepOutput& step, BlobWriter& out);

// A step and the arrays that it refers to.
struct ReceivedStep {
  std::vector<TokenId> tokens;
  std::vector<int32_t> positions, seq_begin, slots, row_slots, rope_scalings, output_rows, logit_rows;
  std::vector<std::vector<PageId>> pages;
  std::vector<PageTable> page_tables;
  std::vector<DeviceSampling> sampling;
  std::vector<float> hidden;
  StepInputs inputs;

  void read(BlobReader& in);
};

struct ReceivedOutput {
  std::vector<TokenId> sampled;
  std::vector<float> logits, hidden;

  void read(BlobReader& in);
};

}  // namespace zinc::mpi

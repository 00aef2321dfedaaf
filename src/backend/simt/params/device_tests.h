// Parameters of what a device is measured with: peaks.cu.
#pragma once

namespace zinc::simt {

struct ReadParams {
  const unsigned char* bytes;
  long long n_bytes;
  int* sum;
};

}  // namespace zinc::simt

// A device of a worker as a Backend of rank 0. Its objects lie on the worker; activations and logits travel.
#pragma once

#include "backend/backend.h"
#include "backend/mpi/remote_rank.h"

namespace zinc::mpi {

struct RemoteDevice {
  std::unique_ptr<Backend> backend;
  std::string name;  // of the backend, with a device: "cuda:1"
  size_t available_bytes = 0;
};

// `name`: as of open_backend, or empty for the worker's fastest. Of several ranks on a host, each gets a GPU of its
// own.
Result<RemoteDevice> open_remote_device(RemoteRank& rank, std::string_view name, int n_threads);

// The device that a rank opens if the user asks for `name`.
std::string device_of_rank(std::string_view name, int local_rank, int n_local_ranks);

}  // namespace zinc::mpi

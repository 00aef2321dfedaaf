// The functions of Open MPI's library that we use, loaded at run time (docs/adr/0059). Handles are addresses of objects
// in the library, as in its mpi.h.
#pragma once

#include <cstddef>

#include "base/result.h"

namespace zinc::mpi {

using Handle = void*;
struct MessageStatus {  // MPI_Status
  int source = 0, tag = 0, error = 0, is_cancelled = 0;
  size_t n_bytes = 0;
};
inline constexpr int kSuccess = 0, kThreadSerialized = 2;

struct OpenMpi {
  int (*init_thread)(int* argc, char*** argv, int required, int* provided);
  int (*finalize)();
  int (*comm_rank)(Handle comm, int* rank);
  int (*comm_size)(Handle comm, int* size);
  int (*comm_set_errhandler)(Handle comm, Handle handler);
  int (*iprobe)(int source, int tag, Handle comm, int* is_there, MessageStatus* status);
  int (*irecv)(void* buffer, int n, Handle type, int source, int tag, Handle comm, Handle* request);
  int (*isend)(const void* buffer, int n, Handle type, int to, int tag, Handle comm, Handle* request);
  int (*test)(Handle* request, int* is_done, MessageStatus* status);
  int (*get_count)(const MessageStatus* status, Handle type, int* n);
  Handle world, byte, errors_return, no_request;

  static Result<OpenMpi> load();
};

}  // namespace zinc::mpi

#include "backend/mpi/open_mpi.h"

#include "base/shared_library.h"

namespace zinc::mpi {

Result<OpenMpi> OpenMpi::load() {
  constexpr const char* kName = "libmpi.so.40";  // of Open MPI 3.1, 4 and 5
  const Result<SharedLibrary> library = SharedLibrary::open(kName);
  if (!library.ok()) {
    return fail(ErrorCode::not_found,
                "--split-hosts needs Open MPI: {}; install it on every host (Debian, Ubuntu: apt install openmpi-bin)",
                library.error().message);
  }
  OpenMpi mpi{};
  const char* missing = nullptr;
  const auto find = [&](auto& pointer, const char* symbol) {
    pointer = reinterpret_cast<std::remove_reference_t<decltype(pointer)>>(library.value().find(symbol));
    if (!pointer) missing = symbol;
  };
  find(mpi.init_thread, "MPI_Init_thread");
  find(mpi.finalize, "MPI_Finalize");
  find(mpi.comm_rank, "MPI_Comm_rank");
  find(mpi.comm_size, "MPI_Comm_size");
  find(mpi.comm_set_errhandler, "MPI_Comm_set_errhandler");
  find(mpi.iprobe, "MPI_Iprobe");
  find(mpi.irecv, "MPI_Irecv");
  find(mpi.isend, "MPI_Isend");
  find(mpi.test, "MPI_Test");
  find(mpi.get_count, "MPI_Get_count");
  find(mpi.world, "ompi_mpi_comm_world");
  find(mpi.byte, "ompi_mpi_byte");
  find(mpi.errors_return, "ompi_mpi_errors_return");
  find(mpi.no_request, "ompi_request_null");
  if (!missing) return mpi;
  return fail(ErrorCode::unsupported, "{} has no {}: --split-hosts needs Open MPI 4 or 5", kName, missing);
}

}  // namespace zinc::mpi

// The program of a rank above 0: runs the calls of rank 0 on devices of its own until rank 0 is done.
#pragma once

#include "backend/mpi/world.h"

namespace zinc::mpi {

// Fails if rank 0 is lost.
Status run_worker(World& world);

}  // namespace zinc::mpi

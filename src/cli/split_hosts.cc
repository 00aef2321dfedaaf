#include "cli/split_hosts.h"

#include <cstdlib>

#include "backend/mpi/remote_rank.h"
#include "backend/mpi/worker.h"
#include "base/job_signals.h"
#include "cli/output.h"

namespace zinc {
namespace {

constexpr int kExitFailure = 1;

// Started alone, Open MPI would start a daemon of its own first.
bool is_launched() { return std::getenv("OMPI_COMM_WORLD_SIZE") || std::getenv("PMIX_RANK"); }

// Signals of mpirun reach all ranks: rank 0 decides when the job ends.
Status run_device(mpi::World& world) {
  ignore_termination_signals();
  const std::string name = world.name_of(world.rank());
  world.set_on_lost([name](const Error& why) {  // also during a step, which may take long
    print_stderr(fmt::format("zinc: {}: {}", name, why.message));
    exit_at_once(kExitFailure);
  });
  const Status status = mpi::run_worker(world);
  world.leave();
  return status;
}

}  // namespace

bool is_split_over_hosts(const CLI::App& app) {
  for (const CLI::App* sub : app.get_subcommands()) {
    const CLI::Option* const option = sub->get_option_no_throw(std::string(kSplitHostsOption));
    if ((option && option->count() > 0) || is_split_over_hosts(*sub)) return true;
  }
  return false;
}

Status run_split_over_hosts(const std::function<Status()>& command) {
  if (!is_launched()) {
    return fail(ErrorCode::invalid_input,
                "{} needs processes to split over: start them with mpirun, for example `mpirun -n 2 zinc ...` "
                "(docs/devices.md)",
                kSplitHostsOption);
  }
  // Where ranks share cores, Open MPI would yield at every call; our loops sleep instead (mpi/backoff.h).
  constexpr int kKeepUsersChoice = 0;
  ::setenv("OMPI_MCA_mpi_yield_when_idle", "0", kKeepUsersChoice);
  ZINC_TRY(joined, mpi::World::join());
  mpi::World& world = *joined;
  if (world.rank() > 0) return run_device(world);
  Status status = command();
  for (const auto& worker : mpi::remote_ranks(world)) worker->send(mpi::Call::leave, 0);
  world.leave();
  if (const std::optional<Error> why = world.lost(); why && status.ok()) return *why;
  return status;
}

}  // namespace zinc

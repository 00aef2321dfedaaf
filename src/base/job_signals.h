// Signals by which a job launcher such as mpirun ends the processes of a job: SIGCONT, after a second SIGTERM, after
// another one SIGKILL.
#pragma once

namespace zinc {

void watch_sigcont();
bool take_sigcont();                       // whether SIGCONT has arrived since the last call; any thread
void ignore_termination_signals();         // SIGTERM, SIGINT and SIGHUP
[[noreturn]] void exit_at_once(int code);  // without destructors; any thread

}  // namespace zinc

#include "cli/trace_file.h"

#include <fmt/format.h>

#include "cli/output.h"

namespace zinc {

void declare_trace_options(CLI::App& app, TraceArguments& arguments) {
  app.add_option("--trace", arguments.path,
                 "write a trace of requests, steps and kernels to FILE (JSON, for ui.perfetto.dev)")
      ->option_text("FILE");
  app.add_option("--trace-detail", arguments.detail,
                 "what --trace records: kernels, or steps only (on a GPU, timing each kernel slows steps down)")
      ->check(CLI::IsMember({"kernels", "steps"}))
      ->capture_default_str();
}

Result<TraceFile> TraceFile::open(const TraceArguments& arguments) {
  TraceFile out;
  out.arguments_ = arguments;
  if (arguments.path.empty()) return out;
  ZINC_TRY(file, AtomicFile::create(arguments.path));
  out.file_ = std::move(file);
  out.trace_ = std::make_unique<Trace>();
  return out;
}

TraceOptions TraceFile::options(std::string name) const {
  return {.trace = trace_.get(), .name = std::move(name), .time_kernels = arguments_.detail == "kernels"};
}

Status TraceFile::finish(Status done) {
  if (!trace_) return done;
  Status written = trace_->write(*file_);
  if (written.ok()) written = file_->commit();
  if (written.ok()) print_stderr(fmt::format("zinc: trace written to {}; open it in ui.perfetto.dev", arguments_.path));
  return done.ok() ? written : done;
}

}  // namespace zinc

// --trace FILE: what the command does, as a Chrome trace. The file is written when the command ends, also after Ctrl-C;
// until then it keeps its old contents.
#pragma once

#include <CLI/CLI.hpp>

#include <memory>
#include <optional>
#include <string>

#include "engine/step_trace.h"

namespace zinc {

struct TraceArguments {
  std::string path;                // empty: no trace
  std::string detail = "kernels";  // or "steps"
};
void declare_trace_options(CLI::App& app, TraceArguments& arguments);

class TraceFile {
 public:
  static Result<TraceFile> open(const TraceArguments& arguments);  // fails if the file cannot be written
  TraceOptions options(std::string name) const;                    // of a model; off if there is no file
  // Writes the file. Returns why the command failed, else why the file could not be written.
  Status finish(Status done);

 private:
  TraceArguments arguments_;
  std::unique_ptr<Trace> trace_;
  std::optional<AtomicFile> file_;
};

}  // namespace zinc

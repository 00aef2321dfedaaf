#include "cli/for_each_name.h"

#include "cli/output.h"

namespace zinc {

Status for_each_name(const std::vector<std::string>& names, bool as_json,
                     const std::function<Result<json::object>(const std::string& name)>& work) {
  json::array reports;
  Status done = ok_status();
  for (size_t i = 0; i < names.size() && done.ok(); ++i) {
    Result<json::object> report = work(names[i]);
    if (report.ok()) {
      reports.push_back(std::move(report.value()));
    } else {
      done = report.error();
    }
  }
  if (as_json && !reports.empty()) {
    if (Status written = write_output(to_pretty_json(reports) + "\n"); !written.ok()) return written;
  }
  return done;
}

}  // namespace zinc

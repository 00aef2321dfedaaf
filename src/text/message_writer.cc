#include "text/message_writer.h"

#include "base/json.h"

namespace zinc {
namespace {

template <class Kind>
Kind* last_of(std::vector<Delta>& deltas) {
  return deltas.empty() ? nullptr : std::get_if<Kind>(&deltas.back());
}

}  // namespace

void MessageWriter::content(std::string_view text) {
  if (text.empty()) return;
  if (auto* last = last_of<ContentDelta>(deltas_)) {
    last->text += text;
  } else {
    deltas_.push_back(ContentDelta{std::string(text)});
  }
}

void MessageWriter::reasoning(std::string_view text) {
  if (text.empty()) return;
  if (auto* last = last_of<ReasoningDelta>(deltas_)) {
    last->text += text;
  } else {
    deltas_.push_back(ReasoningDelta{std::string(text)});
  }
}

void MessageWriter::start_call(std::string_view name, std::string_view id) {
  ZINC_CHECK(!is_open_);
  if (!tools_.has_function(name)) {
    warn(WarningCode::unknown_function,
         fmt::format("the model called '{}', which is not in the request's tools", name));
  }
  deltas_.push_back(CallStart{n_started_++, std::string(name), std::string(id)});
  is_open_ = true;
  arguments_.clear();
}

void MessageWriter::arguments(std::string_view text) {
  ZINC_CHECK(is_open_);
  if (text.empty()) return;
  arguments_ += text;
  if (auto* last = last_of<ArgumentsDelta>(deltas_)) {
    last->text += text;
  } else {
    deltas_.push_back(ArgumentsDelta{n_started_ - 1, std::string(text)});
  }
}

void MessageWriter::call_id(std::string_view id) {
  ZINC_CHECK(n_started_ > 0);
  deltas_.push_back(CallId{n_started_ - 1, std::string(id)});
}

bool MessageWriter::end_call() {
  ZINC_CHECK(is_open_);
  const Result<json::value> parsed = parse_json(arguments_);
  if (!parsed.ok() || !parsed.value().is_object()) return false;
  deltas_.push_back(CallEnd{n_started_ - 1});
  is_open_ = false;
  commit();
  return true;
}

void MessageWriter::fail_call() {
  if (!is_open_) return;
  deltas_.push_back(CallFailed{n_started_ - 1});
  is_open_ = false;
}

void MessageWriter::warn(WarningCode code, std::string message) {
  deltas_.push_back(ParseWarning{code, std::move(message)});
}

}  // namespace zinc

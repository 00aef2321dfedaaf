#include "text/tagged_parser.h"

#include <algorithm>

#include "text/marker_search.h"

namespace zinc {
namespace {

std::string_view take_front(std::string_view& text, size_t n_bytes) {
  const std::string_view front = text.substr(0, n_bytes);
  text.remove_prefix(n_bytes);
  return front;
}

}  // namespace

TaggedParser::TaggedParser(TaggedSyntax syntax, const ParserContext& context, std::unique_ptr<CallReader> calls)
    : syntax_(std::move(syntax)),
      writer_(context.writer),
      calls_(std::move(calls)),
      state_(context.reasoning_open ? State::thought_start : State::boundary),
      may_reopen_(context.reasoning_open) {
  text_markers_ = syntax_.dropped;
  if (calls_ && !writer_.tools().empty()) {
    text_markers_.insert(text_markers_.end(), syntax_.call_open.begin(), syntax_.call_open.end());
  }
  if (syntax_.think_anywhere) text_markers_.push_back(syntax_.thinking.open);
  boundary_markers_ = text_markers_;
  if (!syntax_.think_anywhere && !syntax_.thinking.open.empty()) boundary_markers_.push_back(syntax_.thinking.open);
}

void TaggedParser::push(std::string_view text) {
  pending_ += text;
  std::string_view rest = pending_;
  while (!rest.empty() && step(rest)) {
  }
  pending_.erase(0, pending_.size() - rest.size());
}

bool TaggedParser::step(std::string_view& rest) {
  switch (state_) {
    case State::thought_start:
      return thought_start(rest);
    case State::thought:
      return thought(rest);
    case State::boundary:
      return boundary(rest);
    case State::text:
      return text(rest);
    case State::call:
      return call(rest);
    case State::malformed:
      return malformed(rest);
  }
  return false;
}

bool TaggedParser::thought_start(std::string_view& rest) {
  rest.remove_prefix(std::min(rest.find_first_not_of('\n'), rest.size()));
  if (rest.empty()) return false;
  if (may_reopen_) {
    if (rest.starts_with(syntax_.thinking.open)) {
      rest.remove_prefix(syntax_.thinking.open.size());
      may_reopen_ = false;
      return true;
    }
    if (syntax_.thinking.open.starts_with(rest)) return false;
  }
  state_ = State::thought;
  return true;
}

bool TaggedParser::thought(std::string_view& rest) {
  const std::string_view markers[] = {syntax_.thinking.close};
  const MarkerHit hit = find_marker(rest, markers);
  think(take_front(rest, hit.before));
  if (hit.marker.empty()) return false;
  thought_.clear();
  rest.remove_prefix(hit.marker.size());
  enter_boundary(Boundary::thought);
  return true;
}

void TaggedParser::think(std::string_view text) {
  writer_.reasoning(text);
  if (calls_ && !writer_.tools().empty()) thought_ += text;
}

// A model that forgets to end its thought may call a tool in it. Whether it meant to cannot be known, so it is no call.
void TaggedParser::warn_of_call_in_thought() {
  if (syntax_.call_close.empty()) return;
  const bool has_call = std::ranges::any_of(syntax_.call_open, [this](std::string_view open) {
    const size_t at = thought_.find(open);
    return at != std::string::npos && thought_.find(syntax_.call_close, at) != std::string::npos;
  });
  if (has_call) {
    writer_.warn(WarningCode::malformed_call,
                 "a tool call stands in a thought that never ended; its text is in the reasoning");
  }
}

bool TaggedParser::boundary(std::string_view& rest) {
  const auto separates = [&](char c) {
    const bool is_separator = boundary_ == Boundary::call && syntax_.separators.find(c) != std::string_view::npos;
    return is_json_space(c) || is_separator;
  };
  const auto end = std::find_if_not(rest.begin(), rest.end(), separates);
  gap_ += take_front(rest, static_cast<size_t>(end - rest.begin()));
  if (rest.empty()) return false;
  const MarkerHit hit = marker_at_start(rest, boundary_markers_);
  if (hit.before == 0) {
    if (hit.marker.empty()) return false;
    rest.remove_prefix(hit.marker.size());
    enter(hit.marker);
    return true;
  }
  flush_gap();
  state_ = State::text;
  return true;
}

bool TaggedParser::text(std::string_view& rest) {
  const MarkerHit hit = find_marker(rest, text_markers_);
  writer_.content(take_front(rest, hit.before));
  if (hit.marker.empty()) return false;
  rest.remove_prefix(hit.marker.size());
  enter(hit.marker);
  return true;
}

void TaggedParser::enter(std::string_view marker) {
  const bool at_boundary = state_ == State::boundary;
  if (marker == syntax_.thinking.open) {
    gap_.clear();
    state_ = State::thought_start;
    may_reopen_ = false;
    return;
  }
  if (std::find(syntax_.dropped.begin(), syntax_.dropped.end(), marker) != syntax_.dropped.end()) return;
  calls_->begin(marker, at_boundary);
  raw_ = marker;
  state_ = State::call;
}

bool TaggedParser::call(std::string_view& rest) {
  while (!rest.empty()) {
    const int n_settled = writer_.n_settled();
    const CallReader::Step step = calls_->push(rest[0], writer_);
    if (step == CallReader::Step::failed) {
      fail_call();
      return true;
    }
    raw_ += take_front(rest, 1);
    if (writer_.n_settled() != n_settled) {
      raw_.clear();
      gap_.clear();
    }
    if (step == CallReader::Step::done) {
      enter_boundary(Boundary::call);
      return true;
    }
  }
  return false;
}

void TaggedParser::fail_call() {
  writer_.fail_call();
  if (calls_->is_certain()) {
    writer_.warn(WarningCode::malformed_call,
                 "the markup of a tool call could not be read; its text is in the content");
    state_ = State::malformed;
  } else {
    state_ = State::text;
  }
  flush_gap();
  writer_.content(raw_);
  raw_.clear();
}

bool TaggedParser::malformed(std::string_view& rest) {
  if (syntax_.call_close.empty()) {
    writer_.content(take_front(rest, rest.size()));
    return false;
  }
  const std::string_view markers[] = {syntax_.call_close};
  const MarkerHit hit = find_marker(rest, markers);
  writer_.content(take_front(rest, hit.before + hit.marker.size()));
  if (hit.marker.empty()) return false;
  enter_boundary(Boundary::call);
  return true;
}

void TaggedParser::enter_boundary(Boundary boundary) {
  state_ = State::boundary;
  boundary_ = boundary;
  gap_.clear();
}

void TaggedParser::flush_gap() {
  std::string_view gap = gap_;
  // Templates put line breaks between thought and answer; indentation is the answer's own.
  if (boundary_ == Boundary::thought) gap.remove_prefix(std::min(gap.find_first_not_of('\n'), gap.size()));
  writer_.content(gap);
  gap_.clear();
}

void TaggedParser::finish() {
  switch (state_) {
    case State::thought_start:
    case State::thought:
      think(pending_);
      warn_of_call_in_thought();
      break;
    case State::boundary:
      if (boundary_ == Boundary::start || !pending_.empty()) flush_gap();
      writer_.content(pending_);
      break;
    case State::text:
    case State::malformed:
      writer_.content(pending_);
      break;
    case State::call:
      if (!calls_->finish(writer_)) fail_call();
      break;
  }
  pending_.clear();
}

}  // namespace zinc

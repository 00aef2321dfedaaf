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
      call_reader_(std::move(calls)),
      state_(context.reasoning_open ? State::reasoning_start : State::boundary),
      may_reopen_(context.reasoning_open) {
  text_markers_ = syntax_.dropped;
  if (call_reader_ && !writer_.tools().empty()) {
    text_markers_.insert(text_markers_.end(), syntax_.call_open.begin(), syntax_.call_open.end());
  }
  if (syntax_.reasoning_anywhere) text_markers_.push_back(syntax_.thinking.open);
  boundary_markers_ = text_markers_;
  if (!syntax_.reasoning_anywhere && !syntax_.thinking.open.empty()) boundary_markers_.push_back(syntax_.thinking.open);
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
    case State::reasoning_start:
      return reasoning_start(rest);
    case State::reasoning:
      return reasoning(rest);
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

bool TaggedParser::reasoning_start(std::string_view& rest) {
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
  state_ = State::reasoning;
  return true;
}

bool TaggedParser::reasoning(std::string_view& rest) {
  const std::string_view markers[] = {syntax_.thinking.close};
  const MarkerMatch hit = find_marker(rest, markers);
  write_reasoning(take_front(rest, hit.before));
  if (hit.marker.empty()) return false;
  reasoning_.clear();
  rest.remove_prefix(hit.marker.size());
  enter_boundary(Boundary::reasoning);
  return true;
}

void TaggedParser::write_reasoning(std::string_view text) {
  writer_.reasoning(text);
  if (call_reader_ && !writer_.tools().empty()) reasoning_ += text;
}

// A model that does not end its reasoning may call a tool inside it. The intent is unclear, so it is not a call.
void TaggedParser::warn_of_call_in_reasoning() {
  if (syntax_.call_close.empty()) return;
  const bool has_call = std::ranges::any_of(syntax_.call_open, [this](std::string_view open) {
    const size_t at = reasoning_.find(open);
    return at != std::string::npos && reasoning_.find(syntax_.call_close, at) != std::string::npos;
  });
  if (has_call) {
    writer_.warn(WarningCode::malformed_call, "a tool call is inside unclosed reasoning; it was returned as reasoning");
  }
}

bool TaggedParser::boundary(std::string_view& rest) {
  const auto is_separator_byte = [&](char c) {
    const bool is_separator = boundary_ == Boundary::call && syntax_.separators.find(c) != std::string_view::npos;
    return is_json_space(c) || is_separator;
  };
  const auto end = std::find_if_not(rest.begin(), rest.end(), is_separator_byte);
  whitespace_ += take_front(rest, static_cast<size_t>(end - rest.begin()));
  if (rest.empty()) return false;
  const MarkerMatch hit = marker_at_start(rest, boundary_markers_);
  if (hit.before == 0) {
    if (hit.marker.empty()) return false;
    rest.remove_prefix(hit.marker.size());
    enter(hit.marker);
    return true;
  }
  flush_whitespace();
  state_ = State::text;
  return true;
}

bool TaggedParser::text(std::string_view& rest) {
  const MarkerMatch hit = find_marker(rest, text_markers_);
  writer_.content(take_front(rest, hit.before));
  if (hit.marker.empty()) return false;
  rest.remove_prefix(hit.marker.size());
  enter(hit.marker);
  return true;
}

void TaggedParser::enter(std::string_view marker) {
  const bool at_boundary = state_ == State::boundary;
  if (marker == syntax_.thinking.open) {
    whitespace_.clear();
    state_ = State::reasoning_start;
    may_reopen_ = false;
    return;
  }
  if (std::find(syntax_.dropped.begin(), syntax_.dropped.end(), marker) != syntax_.dropped.end()) return;
  call_reader_->begin(marker, at_boundary);
  raw_ = marker;
  state_ = State::call;
}

bool TaggedParser::call(std::string_view& rest) {
  while (!rest.empty()) {
    const int n_commits = writer_.n_commits();
    const CallReader::Step step = call_reader_->push(rest[0], writer_);
    if (step == CallReader::Step::failed) {
      fail_call();
      return true;
    }
    raw_ += take_front(rest, 1);
    if (writer_.n_commits() != n_commits) {
      raw_.clear();
      whitespace_.clear();
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
  if (call_reader_->is_certain()) {
    writer_.warn(WarningCode::malformed_call, "a tool call is malformed; it was returned as content");
    state_ = State::malformed;
  } else {
    state_ = State::text;
  }
  flush_whitespace();
  writer_.content(raw_);
  raw_.clear();
}

bool TaggedParser::malformed(std::string_view& rest) {
  if (syntax_.call_close.empty()) {
    writer_.content(take_front(rest, rest.size()));
    return false;
  }
  const std::string_view markers[] = {syntax_.call_close};
  const MarkerMatch hit = find_marker(rest, markers);
  writer_.content(take_front(rest, hit.before + hit.marker.size()));
  if (hit.marker.empty()) return false;
  enter_boundary(Boundary::call);
  return true;
}

void TaggedParser::enter_boundary(Boundary boundary) {
  state_ = State::boundary;
  boundary_ = boundary;
  whitespace_.clear();
}

void TaggedParser::flush_whitespace() {
  std::string_view whitespace = whitespace_;
  // Templates put line breaks between reasoning and content; indentation belongs to the content.
  if (boundary_ == Boundary::reasoning)
    whitespace.remove_prefix(std::min(whitespace.find_first_not_of('\n'), whitespace.size()));
  writer_.content(whitespace);
  whitespace_.clear();
}

void TaggedParser::finish() {
  switch (state_) {
    case State::reasoning_start:
    case State::reasoning:
      write_reasoning(pending_);
      warn_of_call_in_reasoning();
      break;
    case State::boundary:
      if (boundary_ == Boundary::start || !pending_.empty()) flush_whitespace();
      writer_.content(pending_);
      break;
    case State::text:
    case State::malformed:
      writer_.content(pending_);
      break;
    case State::call:
      if (!call_reader_->finish(writer_)) fail_call();
      break;
  }
  pending_.clear();
}

}  // namespace zinc

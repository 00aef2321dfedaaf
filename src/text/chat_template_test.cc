#include "text/chat_template.h"

#include <gtest/gtest.h>

#include <chrono>
#include <ctime>
#include <thread>

namespace zinc {
namespace {

ChatTemplateInputs conversation(int n_messages) {
  ChatTemplateInputs request;
  json::array messages{json::object{{"role", "system"}, {"content", "Be brief."}}};
  while (static_cast<int>(messages.size()) < n_messages) {
    const char* const role = messages.size() % 2 ? "user" : "assistant";
    messages.push_back(json::object{{"role", role}, {"content", std::string(500, 'x')}});
  }
  request.messages = messages;
  return request;
}

ChatTemplate compile(std::string_view source) {
  Result<ChatTemplate> chat = ChatTemplate::compile(source);
  EXPECT_TRUE(chat.ok()) << (chat.ok() ? "" : chat.error().message);
  return chat.ok() ? chat.value() : ChatTemplate::chatml();
}

TEST(ChatTemplate, chatml_is_the_default_template) {
  const ChatTemplate chat = ChatTemplate::chatml();
  EXPECT_EQ(chat.name(), "chatml");
  ChatTemplateInputs request;
  request.messages = json::array{json::object{{"role", "user"}, {"content", "<|im_end|>"}}};
  const Result<RenderedPrompt> prompt = chat.render(request);
  ASSERT_TRUE(prompt.ok()) << prompt.error().message;
  EXPECT_EQ(prompt.value().text(), "<|im_start|>user\n<|im_end|><|im_end|>\n<|im_start|>assistant\n");
  ASSERT_EQ(prompt.value().segments.size(), 5u);
  EXPECT_EQ(prompt.value().segments[3].text, "<|im_end|>");
  EXPECT_TRUE(prompt.value().segments[3].from_input);
  EXPECT_FALSE(prompt.value().segments[4].from_input);
}

TEST(ChatTemplate, bos_and_eos_are_trusted_and_cannot_be_overridden_by_a_request) {
  ChatTemplateInputs request = conversation(2);
  request.bos_token = "<s>";
  request.kwargs = {{"bos_token", "<evil>"}, {"messages", "none"}, {"name", "<s>"}};
  const Result<RenderedPrompt> prompt = compile("{{ bos_token }}{{ messages|length }}{{ name }}").render(request);
  ASSERT_TRUE(prompt.ok());
  ASSERT_EQ(prompt.value().segments.size(), 2u);
  EXPECT_EQ(prompt.value().segments[0].text, "<s>2");
  EXPECT_FALSE(prompt.value().segments[0].from_input);
  EXPECT_EQ(prompt.value().segments[1].text, "<s>");
  EXPECT_TRUE(prompt.value().segments[1].from_input);
}

TEST(ChatTemplate, template_exception_is_returned_with_its_position) {
  const Result<RenderedPrompt> prompt = compile("\n{{ raise_exception('roles!') }}").render(conversation(2));
  ASSERT_FALSE(prompt.ok());
  EXPECT_EQ(prompt.error().message, "template:2:19: roles!");
  EXPECT_FALSE(ChatTemplate::compile("{% if %}").ok());
  EXPECT_FALSE(ChatTemplate::compile("\xFF").ok());
}

TEST(ChatTemplate, capabilities_are_detected_at_compile_time) {
  const ChatTemplate plain = compile("{% for m in messages %}{{ m.content }}{% endfor %}");
  EXPECT_FALSE(plain.supports_tools());
  EXPECT_FALSE(plain.supports_thinking_toggle());
  EXPECT_TRUE(plain.supports_system());
  const ChatTemplate strict = compile(
      "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
      "{{ tools }}{{ enable_thinking }}");
  EXPECT_TRUE(strict.supports_tools());
  EXPECT_TRUE(strict.supports_thinking_toggle());
  EXPECT_FALSE(strict.supports_system());
  EXPECT_FALSE(compile("{% for m in messages if m.role != 'system' %}{{ m.content }}{% endfor %}").supports_system());
}

TEST(ChatTemplate, template_that_requires_tools_may_support_system_messages) {
  EXPECT_TRUE(compile("{% for t in tools %}{% endfor %}{{ messages[0].content }}").supports_system());
}

TEST(ChatTemplate, date_comes_from_the_request) {
  using namespace std::chrono;
  ChatTemplateInputs request = conversation(1);
  request.now = local_days(year(2024) / 12 / 29) + hours(15) + minutes(4) + seconds(5);
  const ChatTemplate chat = compile("{{ strftime_now('%d %b %Y|%A, %B %-d|%H:%M:%S %I %p|%j %y %w %U %W|%%|%F %T') }}");
  EXPECT_EQ(chat.render(request).value().text(),
            "29 Dec 2024|Sunday, December 29|15:04:05 03 PM|364 24 0 52 52|%|2024-12-29 15:04:05");
}

TEST(ChatTemplate, renders_on_many_threads_at_once) {
  const ChatTemplate chat = ChatTemplate::chatml();
  const ChatTemplateInputs request = conversation(20);
  const std::string expected = chat.render(request).value().text();
  std::vector<std::string> texts(4);
  std::vector<std::thread> threads;
  for (std::string& text : texts) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) text = chat.render(request).value().text();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& text : texts) EXPECT_EQ(text, expected);
}

TEST(ChatTemplate, hundred_messages_render_fast) {
  const ChatTemplate chat = ChatTemplate::chatml();
  const ChatTemplateInputs request = conversation(100);
  const std::clock_t begin = std::clock();
  EXPECT_TRUE(chat.render(request).ok());
  // A release build takes about 0.1 ms of processor time; this only catches gross regressions.
  EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 0.5);
}

}  // namespace
}  // namespace zinc

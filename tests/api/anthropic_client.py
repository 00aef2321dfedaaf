"""Anthropic's own Python package, unmodified, against two servers: a scripted one (argument 1) and a tiny model (2)."""
import json
import sys

import anthropic

scripted = anthropic.Anthropic(base_url=sys.argv[1], api_key="test-key", max_retries=0)
model = anthropic.Anthropic(base_url=sys.argv[2], api_key="none", max_retries=0)
TOOLS = [{"name": "weather", "description": "Weather of a city",
          "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}]
CALL = 'SAY[[<think>hm</think>Look.<tool_call>\n{"name": "weather", "arguments": {"city": "Köln"}}\n</tool_call>]]'


def ask(text, **fields):
    return {"model": "scripted", "max_tokens": 500, "messages": [{"role": "user", "content": text}], **fields}


def check_message():
    answer = scripted.messages.create(**ask("SAY[[Grüße]]", system="Be brief."))
    assert answer.content[0].text == "Grüße" and answer.stop_reason == "end_turn"
    assert answer.usage.input_tokens > 0 and answer.usage.output_tokens > 0


def check_stop():
    answer = scripted.messages.create(**ask("SAY[[one two three]]", stop_sequences=[" two"]))
    assert (answer.content[0].text, answer.stop_reason, answer.stop_sequence) == ("one", "stop_sequence", " two")
    cut = scripted.messages.create(**{**ask("SAY[[one two three]]"), "max_tokens": 1})
    assert cut.stop_reason == "max_tokens"


def check_tools():
    answer = scripted.messages.create(**ask(CALL, tools=TOOLS, thinking={"type": "enabled", "budget_tokens": 1024}))
    assert [block.type for block in answer.content] == ["thinking", "text", "tool_use"]
    assert answer.content[2].input == {"city": "Köln"} and answer.stop_reason == "tool_use"
    again = scripted.messages.create(model="scripted", max_tokens=50, tools=TOOLS, messages=[
        {"role": "user", "content": "weather?"},
        {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in answer.content]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": answer.content[2].id,
                                      "content": "SAY[[rain]]"}]}])
    assert again.content[0].text == "rain"


def check_forced_tools():
    """The tiny model's weights are random: only the server makes it obey. A named tool is called exactly once."""
    properties = {"degrees": {"type": "integer", "minimum": -50, "maximum": 50}, "unit": {"enum": ["celsius", "kelvin"]}}
    schema = {"type": "object", "properties": properties, "required": ["degrees", "unit"], "additionalProperties": False}
    for seed in range(10):
        for choice in ({"type": "tool", "name": "record"}, {"type": "any", "disable_parallel_tool_use": True}):
            answer = model.messages.create(
                model="tiny", max_tokens=500, messages=[{"role": "user", "content": "hi"}], tool_choice=choice,
                tools=[{"name": "record", "input_schema": schema}], thinking={"type": "disabled"}, extra_body={"seed": seed})
            assert answer.stop_reason == "tool_use" and [block.type for block in answer.content] == ["tool_use"], answer
            reading = answer.content[0].input
            assert reading.keys() == {"degrees", "unit"} and reading["unit"] in ("celsius", "kelvin"), reading
            assert type(reading["degrees"]) is int and -50 <= reading["degrees"] <= 50, reading


def check_tool_runner():
    @anthropic.beta_tool
    def weather(city: str) -> str:
        """Weather of a city.

        Args:
            city: Its name.
        """
        return f"SAY[[rain in {city}]]"

    runner = scripted.beta.messages.tool_runner(model="scripted", max_tokens=200, tools=[weather],
                                                messages=[{"role": "user", "content": CALL}])
    assert runner.until_done().content[0].text == "rain in Köln"


def check_system_messages_and_prefix():
    answer = scripted.messages.create(model="scripted", max_tokens=50, system="Be brief.", messages=[
        {"role": "user", "content": "hi"}, {"role": "system", "content": "Be very brief."},
        {"role": "user", "content": "SAY[[ok]]"}, {"role": "assistant", "content": "Answer: "}])
    assert answer.content[0].text == "ok"


def check_stream():
    with scripted.messages.stream(**ask(CALL, tools=TOOLS)) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == "Look." and final.content[0].thinking == "hm" and final.content[2].input == {"city": "Köln"}
    assert final.stop_reason == "tool_use" and final.usage.output_tokens > 0


def check_count():
    counted = scripted.messages.count_tokens(model="scripted", messages=[{"role": "user", "content": "hello"}])
    answer = scripted.messages.create(model="scripted", max_tokens=5, messages=[{"role": "user", "content": "hello"}])
    assert counted.input_tokens == answer.usage.input_tokens


def check_errors():
    try:
        scripted.messages.create(**ask("x", extra_body={"temperature": 9}))
        raise AssertionError("a wrong temperature was accepted")
    except anthropic.BadRequestError as error:
        assert error.body["error"]["type"] == "invalid_request_error"
    try:
        anthropic.Anthropic(base_url=sys.argv[1], api_key="wrong", max_retries=0).messages.create(**ask("x"))
        raise AssertionError("a wrong key was accepted")
    except anthropic.AuthenticationError:
        pass
    try:
        with scripted.messages.stream(**ask("FAIL[[so]]")) as stream:
            stream.get_final_message()
        raise AssertionError("a failed response looked complete")
    except anthropic.APIError as error:
        assert "device is lost" in str(error)


def check_structured_output():
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["n"]}
    answer = model.messages.create(model="tiny", max_tokens=200, messages=[{"role": "user", "content": "x"}],
                                   thinking={"type": "disabled"},
                                   extra_body={"output_config": {"format": {"type": "json_schema", "schema": schema}}})
    assert 1 <= json.loads(answer.content[0].text)["n"] <= 9, answer


def check_model():
    fields = {"model": "tiny", "max_tokens": 24, "extra_body": {"temperature": 0},
              "messages": [{"role": "user", "content": "hey you"}]}
    first = model.messages.create(**fields)
    second = model.messages.create(**fields)
    assert first.content[0].text == second.content[0].text and second.usage.cache_read_input_tokens > 0
    with model.messages.stream(**fields) as stream:
        assert "".join(stream.text_stream) == first.content[0].text
    assert [m.id for m in model.models.list().data if m.active] == ["tiny"]


checks = [value for name, value in list(globals().items()) if name.startswith("check_")]
for check in checks:
    check()
print(f"anthropic {anthropic.__version__} for Python: {len(checks)} checks")

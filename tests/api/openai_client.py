"""OpenAI's own Python package, unmodified, against two servers: a scripted one (argument 1) and a tiny model (2)."""
import json
import sys
import typing

import openai
import pydantic

scripted = openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key="test-key", max_retries=0)
model = openai.OpenAI(base_url=sys.argv[2] + "/v1", api_key="none", max_retries=0)
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "Weather of a city", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]
CALL = 'SAY[[<think>hm</think>Look.<tool_call>\n{"name": "weather", "arguments": {"city": "Köln"}}\n</tool_call>]]'


def user(text):
    return [{"role": "user", "content": text}]


def check_models():
    assert [m.id for m in scripted.models.list().data] == ["scripted"]
    assert scripted.models.retrieve("scripted").id == "scripted"


def check_chat():
    answer = scripted.chat.completions.create(model="scripted", messages=user("SAY[[Grüße, 世界]]"))
    assert answer.choices[0].message.content == "Grüße, 世界"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.usage.prompt_tokens_details.cached_tokens == 0


def check_stream():
    text, usage, finish = "", None, None
    for chunk in scripted.chat.completions.create(model="scripted", messages=user("SAY[[Grüße, 世界]]"), stream=True,
                                                  stream_options={"include_usage": True}):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            finish = choice.finish_reason or finish
    assert (text, finish) == ("Grüße, 世界", "stop") and usage.completion_tokens > 0


def check_tools():
    answer = scripted.chat.completions.create(model="scripted", messages=user(CALL), tools=TOOLS)
    call = answer.choices[0].message.tool_calls[0]
    assert answer.choices[0].finish_reason == "tool_calls"
    assert json.loads(call.function.arguments) == {"city": "Köln"}
    assert answer.choices[0].message.reasoning_content == "hm"
    again = scripted.chat.completions.create(model="scripted", tools=TOOLS, messages=user("weather?") + [
        answer.choices[0].message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": "SAY[[rain]]"}])
    assert again.choices[0].message.content == "rain"


def check_tool_stream():
    with scripted.chat.completions.stream(model="scripted", messages=user(CALL), tools=TOOLS) as stream:
        for _ in stream:
            pass
        message = stream.get_final_completion().choices[0].message
    assert json.loads(message.tool_calls[0].function.arguments) == {"city": "Köln"} and message.content == "Look."


class Reading(pydantic.BaseModel, extra="forbid", strict=True):
    degrees: int = pydantic.Field(ge=-50, le=50)
    unit: typing.Literal["celsius", "kelvin"]
    is_stable: bool


def check_forced_tools():
    """The tiny model's weights are random: only the server makes it obey. A named function is called exactly once."""
    function = {"name": "record", "parameters": Reading.model_json_schema()}
    for seed in range(10):
        for choice in ({"tool_choice": {"type": "function", "function": {"name": "record"}}},
                       {"tool_choice": "required", "parallel_tool_calls": False}):
            answer = model.chat.completions.create(
                model="tiny", messages=user("hi"), tools=[{"type": "function", "function": function}], seed=seed,
                reasoning_effort="none", **choice).choices[0]
            assert answer.finish_reason == "tool_calls" and len(answer.message.tool_calls) == 1, answer
            assert answer.message.tool_calls[0].function.name == "record"
            Reading.model_validate_json(answer.message.tool_calls[0].function.arguments)
        answer = model.responses.create(model="tiny", input="hi", tools=[{"type": "function", "strict": True, **function}],
                                        tool_choice={"type": "function", "name": "record"}, reasoning={"effort": "none"},
                                        extra_body={"seed": seed})
        assert answer.status == "completed" and [item.type for item in answer.output] == ["function_call"], answer
        Reading.model_validate_json(answer.output[0].arguments)


def check_responses():
    answer = scripted.responses.create(model="scripted", input="SAY[[hello]]", instructions="Be brief.")
    assert answer.output_text == "hello" and answer.status == "completed"
    tools = [{"type": "function", "strict": True, **TOOLS[0]["function"]}]
    with scripted.responses.stream(model="scripted", input=CALL, tools=tools) as stream:
        types = [event.type for event in stream]
        final = stream.get_final_response()
    assert types[0] == "response.created" and types[-1] == "response.completed"
    assert [item.type for item in final.output] == ["reasoning", "message", "function_call"]
    assert json.loads(final.output[2].arguments) == {"city": "Köln"}
    follow = scripted.responses.create(model="scripted", tools=tools, input=[
        {"role": "user", "content": "weather?"}, *[item.model_dump(exclude_none=True) for item in final.output],
        {"type": "function_call_output", "call_id": final.output[2].call_id, "output": "SAY[[rain]]"}])
    assert follow.output_text == "rain"


def check_kept_responses():
    first = scripted.responses.create(model="scripted", input="FIRST SAY[[one]]")
    second = scripted.responses.create(model="scripted", input="SAY[[two]]", previous_response_id=first.id)
    assert second.output_text == "two" and second.usage.input_tokens > first.usage.input_tokens
    assert scripted.responses.retrieve(first.id).output_text == "one"
    items = scripted.responses.input_items.list(second.id).data
    assert [item.type for item in items] == ["message"] * 3 and items[0].content[0].text == "SAY[[two]]"
    referred = scripted.responses.create(model="scripted", input=[
        {"type": "item_reference", "id": first.output[0].id}, {"role": "user", "content": "SAY[[three]]"}])
    assert referred.output_text == "three"
    counted = scripted.responses.input_tokens.count(model="scripted", input="SAY[[two]]", previous_response_id=first.id)
    assert counted.input_tokens == second.usage.input_tokens
    scripted.responses.delete(first.id)
    try:
        scripted.responses.create(model="scripted", input="x", previous_response_id=first.id)
        raise AssertionError("a deleted response was continued")
    except openai.BadRequestError as error:
        assert error.body["code"] == "previous_response_not_found"


def check_encrypted_reasoning():
    answer = scripted.responses.create(model="scripted", input="SAY[[<think>secret plan</think>a]]", store=False,
                                       include=["reasoning.encrypted_content"])
    reasoning = {"type": "reasoning", "id": answer.output[0].id, "summary": [],
                 "encrypted_content": answer.output[0].encrypted_content}
    ask = [{"role": "user", "content": "hi"}, {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
           {"type": "function_call_output", "call_id": "c", "output": "SAY[[b]]"}]
    without = scripted.responses.create(model="scripted", input=ask, store=False)
    again = scripted.responses.create(model="scripted", input=[ask[0], reasoning, *ask[1:]], store=False)
    assert again.usage.input_tokens > without.usage.input_tokens


def check_fields_of_other_servers():
    raw = scripted.chat.completions.with_raw_response.create(model="scripted", messages=user("SAY[[one two]]"), extra_body={
        "max_tokens": -1, "top_k": -1, "min_tokens": 1, "stop_token_ids": [0], "skip_special_tokens": True,
        "cache_prompt": True, "reasoning": {"effort": "low"}, "ttl": 5, "provider": {"order": []}})
    assert raw.parse().choices[0].message.content == "one two"
    assert raw.headers["x-zinc-ignored-fields"] == "ttl, provider", raw.headers
    chosen = model.chat.completions.create(model="tiny", messages=user("x"), reasoning_effort="none", extra_body={
        "structured_outputs": {"choice": ["red", "green"]}}).choices[0].message.content
    assert chosen in ("red", "green"), chosen
    matched = model.chat.completions.create(model="tiny", messages=user("x"), reasoning_effort="none", extra_body={
        "guided_regex": "[0-9]{3}"}).choices[0].message.content
    assert len(matched) == 3 and matched.isdigit(), matched


def check_prompt_logprobs():
    ask = {"model": "tiny", "prompt": "The sky is blue", "echo": True, "logprobs": 1}
    scored = model.completions.create(**ask, max_tokens=0)
    logprobs = scored.choices[0].logprobs
    assert scored.choices[0].text == "The sky is blue" and scored.usage.completion_tokens == 0
    assert logprobs.token_logprobs[0] is None and all(p <= 0 for p in logprobs.token_logprobs[1:])
    assert len(logprobs.tokens) == scored.usage.prompt_tokens == len(logprobs.top_logprobs)
    one = model.completions.create(**ask, max_tokens=1).choices[0].logprobs
    assert len(one.tokens) == len(logprobs.tokens) + 1
    assert all(abs(a - b) < 1e-3 for a, b in zip(one.token_logprobs[1:], logprobs.token_logprobs[1:]))


def check_many_prompts():
    answer = scripted.completions.create(model="scripted", prompt=[f"SAY[[{i}]]" for i in range(64)])
    assert [choice.text for choice in answer.choices] == [str(i) for i in range(64)]


def check_errors():
    for kind, fields in [(openai.BadRequestError, {"temperature": 9}), (openai.NotFoundError, {"model": "nope"}),
                         (openai.BadRequestError, {"response_format": {
                             "type": "json_schema", "json_schema": {"name": "x", "schema": {"not": {}}}}})]:
        try:
            scripted.chat.completions.create(**{"model": "scripted", "messages": user("x"), **fields})
            raise AssertionError(f"{fields} was accepted")
        except kind as error:
            assert error.body["param"] in fields, error.body
    try:
        openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key="wrong", max_retries=0).models.list()
        raise AssertionError("a wrong key was accepted")
    except openai.AuthenticationError as error:
        assert error.body["code"] == "invalid_api_key"
    try:
        model.chat.completions.create(model="tiny", messages=user("x" * 50000))
        raise AssertionError("a prompt over the context was accepted")
    except openai.BadRequestError as error:
        assert error.body["code"] == "context_length_exceeded" and "1024" in error.body["message"]
        assert "this model's maximum context length is 1024" in error.body["message"]


def check_broken_stream():
    try:
        for _ in scripted.chat.completions.create(model="scripted", messages=user("FAIL[[so]]"), stream=True):
            pass
        raise AssertionError("a failed response looked complete")
    except openai.APIError as error:
        assert "device is lost" in str(error)


def check_embeddings():
    answer = model.embeddings.create(model="tiny", input=["hello", "world", "hello"])
    vectors = [entry.embedding for entry in answer.data]
    assert abs(sum(x * x for x in vectors[0]) - 1) < 1e-3
    assert max(abs(a - b) for a, b in zip(vectors[0], vectors[2])) < 1e-6 and vectors[0] != vectors[1]
    many = model.embeddings.create(model="tiny", input=["a", ""] * 150, dimensions=8)
    assert len(many.data) == 300 and len(many.data[1].embedding) == 8
    assert abs(sum(x * x for x in many.data[0].embedding) - 1) < 1e-3
    floats = model.embeddings.create(model="tiny", input="hello", encoding_format="float").data[0].embedding
    assert max(abs(a - b) for a, b in zip(vectors[0], floats)) < 1e-6


class Person(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=8)
    age: int = pydantic.Field(ge=0, le=120)
    mood: typing.Literal["good", "bad"]
    friends: list["Person"] = pydantic.Field(max_length=1)


def check_structured_output():
    for seed in range(5):
        ask = {"model": "tiny", "messages": user("who?"), "seed": seed, "max_tokens": 900, "reasoning_effort": "none"}
        person = model.chat.completions.parse(**ask, response_format=Person).choices[0].message.parsed
        assert 0 <= person.age <= 120 and len(person.name) <= 8, person
    person = model.responses.parse(model="tiny", input="who?", text_format=Person, temperature=0,
                                   reasoning={"effort": "none"}).output_parsed
    assert person.mood in ("good", "bad"), person
    free = model.chat.completions.create(**ask, response_format={"type": "json_object"})
    assert free.choices[0].finish_reason == "length" or isinstance(json.loads(free.choices[0].message.content), dict)
    pieces = [c.choices[0].delta.content or "" for c in model.chat.completions.create(
        **ask, stream=True, extra_body={"grammar": 'root ::= "yes" | "no"'}) if c.choices]
    assert "".join(pieces) in ("yes", "no"), pieces


def check_model():
    ask = {"model": "tiny", "messages": user("hello"), "max_tokens": 24, "temperature": 0}
    first = model.chat.completions.create(**ask)
    second = model.chat.completions.create(**ask)
    assert first.choices[0].message.content == second.choices[0].message.content
    assert second.usage.prompt_tokens_details.cached_tokens == second.usage.prompt_tokens - 1
    streamed = "".join(c.choices[0].delta.content or ""
                       for c in model.chat.completions.create(**ask, stream=True) if c.choices)
    assert streamed == first.choices[0].message.content
    seeded = {"model": "tiny", "prompt": "once", "seed": 7, "max_tokens": 16, "n": 3}
    drawn = [[c.text for c in model.completions.create(**seeded).choices] for _ in range(2)]
    assert drawn[0] == drawn[1] and len(set(drawn[0])) > 1
    whole = model.chat.completions.create(**ask, logprobs=True, top_logprobs=3, extra_body={"ignore_eos": True})
    tokens = whole.choices[0].logprobs.content
    assert len(tokens) == 24 and all(len(t.top_logprobs) == 3 and t.logprob <= 0 for t in tokens)
    biased = model.completions.create(model="tiny", prompt="once", max_tokens=4, logit_bias={"65": 100}, temperature=0)
    assert len(set(biased.choices[0].text)) == 1


checks = [value for name, value in list(globals().items()) if name.startswith("check_")]
for check in checks:
    check()
print(f"openai {openai.__version__} for Python: {len(checks)} checks")

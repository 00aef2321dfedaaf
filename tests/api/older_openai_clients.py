"""litellm and instructor, which use an older openai package, against servers: scripted (argument 1), a tiny model (2), one that
does not think (3)."""
import importlib.metadata
import os
import sys
import typing

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # before litellm is imported: it would fetch its price list

import instructor
import litellm
import openai
import pydantic

KEY = "test-key"
litellm.suppress_debug_info = True


class City(pydantic.BaseModel):
    city: str


class Reading(pydantic.BaseModel):
    """What an instrument shows."""
    degrees: int = pydantic.Field(ge=-50, le=50)
    unit: typing.Literal["celsius", "kelvin"]
    is_stable: bool


def user(text):
    return [{"role": "user", "content": text}]


def check_litellm():
    for provider, base in (("openai", "/v1"), ("hosted_vllm", "/v1"), ("lm_studio", "/v1"), ("anthropic", "")):
        answer = litellm.completion(f"{provider}/scripted", user("SAY[[hello]]"), api_base=sys.argv[1] + base, api_key=KEY,
                                    max_tokens=50)
        assert answer.choices[0].message.content == "hello", provider
    texts = litellm.text_completion(model="text-completion-openai/scripted", prompt="SAY[[x]]", api_base=sys.argv[1] + "/v1",
                                    api_key=KEY)
    assert texts.choices[0].text == "x"


def check_litellm_ollama():
    for name in ("ollama/scripted", "ollama_chat/scripted"):
        arguments = {"model": name, "api_base": sys.argv[1], "api_key": KEY, "messages": user("SAY[[Grüße]]"),
                     "extra_headers": {"Authorization": f"Bearer {KEY}"}}
        assert litellm.completion(**arguments).choices[0].message.content == "Grüße", name
        text = "".join(part.choices[0].delta.content or "" for part in litellm.completion(stream=True, **arguments))
        assert text == "Grüße", name


def check_litellm_forces_tools():
    """The tiny model's weights are random: only the server makes it obey. A named function is called exactly once."""
    tools = [{"type": "function", "function": {"name": "record", "parameters": Reading.model_json_schema()}}]
    named = {"tool_choice": {"type": "function", "function": {"name": "record"}}}
    plain = {"tools": tools, "_skip_mcp_handler": True}  # with tools litellm imports its MCP proxy, which pip does not install
    for seed in range(10):
        for choice in (named, {"tool_choice": "required", "parallel_tool_calls": False}):
            answer = litellm.completion("openai/tiny", user("hi"), api_base=sys.argv[3] + "/v1", api_key="none", seed=seed,
                                        **plain, **choice).choices[0]
            assert len(answer.message.tool_calls) == 1 and answer.message.tool_calls[0].function.name == "record", answer
            Reading.model_validate_json(answer.message.tool_calls[0].function.arguments)
        answer = litellm.completion("anthropic/tiny", user("hi"), api_base=sys.argv[3], api_key="none", max_tokens=500,
                                    **plain, **named).choices[0]
        assert len(answer.message.tool_calls) == 1, answer
        Reading.model_validate_json(answer.message.tool_calls[0].function.arguments)


def check_litellm_overflow():
    try:
        litellm.completion("openai/tiny", user("x" * 50000), api_base=sys.argv[2] + "/v1", api_key="none", num_retries=0)
        raise AssertionError("a prompt over the context was accepted")
    except litellm.ContextWindowExceededError:
        pass


def check_instructor():
    client = openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key=KEY, max_retries=0)
    for mode in (instructor.Mode.JSON, instructor.Mode.JSON_SCHEMA, instructor.Mode.MD_JSON):
        text = '```json\n{"city": "Ulm"}\n```' if mode == instructor.Mode.MD_JSON else '{"city": "Ulm"}'
        city = instructor.from_openai(client, mode=mode).chat.completions.create(
            model="scripted", response_model=City, messages=user(f"SAY[[{text}]]"), max_retries=0)
        assert city.city == "Ulm", (mode, city)


def check_instructor_forces_a_tool_by_default():
    """Mode.TOOLS: tool_choice names the tool. The tiny model's weights are random: only the server makes it obey."""
    client = instructor.from_openai(openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key=KEY, max_retries=0))
    assert client.mode == instructor.Mode.TOOLS
    call = 'SAY[[<tool_call>\n{"name": "City", "arguments": {"city": "Ulm"}}\n</tool_call>]]'
    city = client.chat.completions.create(model="scripted", response_model=City, messages=user(call), max_retries=0)
    assert city.city == "Ulm", city
    client = instructor.from_openai(openai.OpenAI(base_url=sys.argv[3] + "/v1", api_key="none", max_retries=0))
    for seed in range(20):
        client.chat.completions.create(model="tiny", response_model=Reading, messages=user("hi"), max_retries=0, seed=seed)


checks = [value for name, value in list(globals().items()) if name.startswith("check_")]
for check in checks:
    check()
print(", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("litellm", "instructor")) + f": {len(checks)} checks")

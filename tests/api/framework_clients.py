"""Frameworks with their defaults against servers: a scripted one (argument 1), a tiny model (2), one that does not think (3)."""
import importlib.metadata
import json
import sys
import typing

import pydantic
import pydantic_ai
import smolagents
from langchain_anthropic import ChatAnthropic
from langchain_core.exceptions import ContextOverflowError
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

KEY = "test-key"
scripted = {"base_url": sys.argv[1] + "/v1", "api_key": KEY}
tiny = {"base_url": sys.argv[2] + "/v1", "api_key": "none"}
forced = {"base_url": sys.argv[3] + "/v1", "api_key": "none"}


def call(name, **arguments):
    return f'SAY[[<tool_call>\n{json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)}\n</tool_call>]]'


class City(pydantic.BaseModel):
    city: str


class Reading(pydantic.BaseModel):
    """What an instrument shows."""
    degrees: int = pydantic.Field(ge=-50, le=50)
    unit: typing.Literal["celsius", "kelvin"]
    is_stable: bool


@tool
def weather(city: str) -> str:
    """Weather of a city."""
    return f"SAY[[rain in {city}]]"


class Thermostat(smolagents.Tool):
    name = "thermostat"
    description = "Sets a temperature."
    inputs = {"degrees": {"type": "integer", "description": "-50 to 50", "minimum": -50, "maximum": 50},
              "unit": {"type": "string", "description": "of the degrees", "enum": ["celsius", "kelvin"]},
              "is_stable": {"type": "boolean", "description": "whether it is kept"}}
    output_type = "string"

    def forward(self, degrees: int, unit: str, is_stable: bool) -> str:
        return "done"


def check_langchain_openai():
    chat = ChatOpenAI(model="scripted", **scripted)
    assert chat.invoke("SAY[[hello]]").content == "hello"
    assert "".join(chunk.content for chunk in chat.stream("SAY[[hello]]")) == "hello"
    assert chat.bind_tools([weather]).invoke(call("weather", city="Ulm")).tool_calls[0]["args"] == {"city": "Ulm"}
    kept = ChatOpenAI(model="scripted", use_responses_api=True, use_previous_response_id=True, **scripted)
    first = kept.invoke("SAY[[one]]")
    assert kept.invoke([("user", "SAY[[one]]"), first, ("user", "SAY[[two]]")]).text == "two"


def check_langchain_batches():
    assert OpenAI(model="scripted", **scripted).generate([f"SAY[[{i}]]" for i in range(20)]).generations[19][0].text == "19"
    embeddings = OpenAIEmbeddings(model="tiny", check_embedding_ctx_length=False, **tiny)
    assert len(embeddings.embed_documents(["text"] * 600)) == 600


def check_langchain_overflow():
    try:
        ChatOpenAI(model="tiny", **tiny).invoke("x" * 50000)
        raise AssertionError("a prompt over the context was accepted")
    except ContextOverflowError:
        pass


def check_langchain_anthropic():
    chat = ChatAnthropic(model="scripted", base_url=sys.argv[1], api_key=KEY, max_tokens=100)
    assert chat.invoke("SAY[[hello]]").content == "hello"
    assert chat.bind_tools([weather]).invoke(call("weather", city="Ulm")).tool_calls[0]["name"] == "weather"


def check_pydantic_ai():
    model = OpenAIChatModel("scripted", provider=OpenAIProvider(**scripted))
    agent = pydantic_ai.Agent(model)

    @agent.tool_plain
    def forecast(city: str) -> str:
        return f"SAY[[sun in {city}]]"

    assert agent.run_sync(call("forecast", city="Ulm")).output == "sun in Ulm"
    native = pydantic_ai.Agent(model, output_type=pydantic_ai.NativeOutput(City))
    assert native.run_sync('SAY[[{"city": "Ulm"}]]').output == City(city="Ulm")


# Forced tools, which these packages use by default. The tiny model's weights are random: only the server makes it obey.
# pydantic-ai and smolagents send `required`, one or more calls: a random model would not stop after the first.
def check_pydantic_ai_forces_its_output_tool():
    model = OpenAIChatModel("scripted", provider=OpenAIProvider(**scripted))
    assert pydantic_ai.Agent(model, output_type=City).run_sync(call("final_result", city="Ulm")).output == City(city="Ulm")
    agent = pydantic_ai.Agent(OpenAIChatModel("tiny", provider=OpenAIProvider(**forced)), output_type=Reading, retries=0)
    for seed in range(20):
        assert isinstance(agent.run_sync("hi", model_settings={"seed": seed, "parallel_tool_calls": False}).output, Reading)


def check_langchain_forces_its_output_tool():
    chat = ChatAnthropic(model="scripted", base_url=sys.argv[1], api_key=KEY, max_tokens=100)
    assert chat.with_structured_output(City).invoke(call("City", city="Ulm")) == City(city="Ulm")
    chat = ChatOpenAI(model="tiny", **forced).with_structured_output(Reading, method="function_calling")
    for _ in range(20):
        assert isinstance(chat.invoke("hi"), Reading)


def check_smolagents_forces_a_tool_in_each_step():
    model = smolagents.OpenAIModel(model_id="scripted", api_base=sys.argv[1] + "/v1", api_key=KEY)
    agent = smolagents.ToolCallingAgent(tools=[], model=model, max_steps=2, verbosity_level=0)
    assert agent.run(call("final_answer", answer="42")) == "42"
    model = smolagents.OpenAIModel(model_id="tiny", api_base=sys.argv[3] + "/v1", api_key="none")
    for seed in range(20):
        answer = model.generate([{"role": "user", "content": "hi"}], tools_to_call_from=[Thermostat()], seed=seed,
                                parallel_tool_calls=False)
        assert answer.tool_calls[0].function.name == "thermostat", answer
        Reading.model_validate_json(answer.tool_calls[0].function.arguments)


def check_smolagents():
    model = smolagents.OpenAIModel(model_id="scripted", api_base=sys.argv[1] + "/v1", api_key=KEY)
    agent = smolagents.CodeAgent(tools=[], model=model, max_steps=2, verbosity_level=0)
    assert agent.run("SAY[[<code>\nfinal_answer(6 * 7)\n</code>]]") == 42


checks = [value for name, value in list(globals().items()) if name.startswith("check_")]
for check in checks:
    check()
names = ("langchain-openai", "langchain-anthropic", "pydantic-ai-slim", "smolagents")
print(", ".join(f"{name} {importlib.metadata.version(name)}" for name in names) + f": {len(checks)} checks")

"""Frameworks with their defaults against two servers: a scripted one (argument 1) and a tiny model (2)."""
import importlib.metadata
import json
import sys

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


def call(name, **arguments):
    return f'SAY[[<tool_call>\n{json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)}\n</tool_call>]]'


class City(pydantic.BaseModel):
    city: str


@tool
def weather(city: str) -> str:
    """Weather of a city."""
    return f"SAY[[rain in {city}]]"


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


def check_smolagents():
    model = smolagents.OpenAIModel(model_id="scripted", api_base=sys.argv[1] + "/v1", api_key=KEY)
    agent = smolagents.CodeAgent(tools=[], model=model, max_steps=2, verbosity_level=0)
    assert agent.run("SAY[[<code>\nfinal_answer(6 * 7)\n</code>]]") == 42


checks = [value for name, value in list(globals().items()) if name.startswith("check_")]
for check in checks:
    check()
names = ("langchain-openai", "langchain-anthropic", "pydantic-ai-slim", "smolagents")
print(", ".join(f"{name} {importlib.metadata.version(name)}" for name in names) + f": {len(checks)} checks")

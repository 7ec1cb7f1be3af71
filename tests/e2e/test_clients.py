"""Clients as their users run them, unmodified and pinned: each in an environment of its own, against the built-in model, whose structured answers are
valid although it knows nothing. Under QUIRE_TEST_LONG=1."""
import json
import os
import shutil
import subprocess
import textwrap

import pytest

import client_venv
from conftest import KEY, Server
from test_embed_modules import add_modules, flags_pooling
from test_embed_text import model as text_model  # noqa: F401: a fixture

pytestmark = pytest.mark.skipif(os.environ.get("QUIRE_TEST_LONG") != "1", reason="of make test-long")
PINS = {
    "instructor": ["instructor==1.17.0", "openai==3.3.0"],
    "langchain": ["langchain-openai==1.7.4", "langchain-core==1.8.3", "openai==3.57.0"],
    "litellm": ["litellm==1.110.2", "openai==3.57.0"],
    "agents": ["openai-agents==0.24.0", "openai==3.57.0"],
    "pydantic-ai": ["pydantic-ai-slim[openai]==2.68.0", "openai==3.57.0"],
    "dspy": ["dspy==3.4.1", "numpy==2.4.6", "openai==3.57.0"],
    "haystack": ["haystack-ai==3.4.1", "openai==3.57.0"],
    "llama-index": ["llama-index-llms-openai-like==0.8.1", "llama-index-embeddings-openai-like==0.4.0", "openai==2.54.0"],
    "smolagents": ["smolagents[openai]==1.26.0", "openai==3.57.0"],
}


@pytest.fixture(scope="module")
def server(quire, tmp_path_factory):
    """The built-in model with room for the prompts of an agent."""
    path = tmp_path_factory.mktemp("clients") / "model"
    shutil.copytree("models/builtin-hf", path)
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 16384}))
    s = Server(str(path), "--api-key", KEY, "--served-model-name", "builtin", "gpt-4o-mini", "--enable-auto-tool-choice")
    yield s
    assert s.stop() == 0


@pytest.fixture(scope="module")
def embedder(quire, text_model):  # noqa: F811
    add_modules(text_model, ("Pooling", flags_pooling("mean"), None), ("Normalize", None, None))
    s = Server(text_model, "--api-key", KEY, "--served-model-name", "bert")
    yield s
    assert s.stop() == 0


TEXTS = ["The page table maps positions.", "what is a page?"]


def check_rows(embedder, client, program):
    """What the program prints are the rows of TEXTS, as the server gives them to a plain request."""
    status, _, text = embedder.ask("POST", "/v1/embeddings", {"input": TEXTS})
    assert status == 200, text
    rows = run(embedder, client, f"import json\nTEXTS = {TEXTS!r}\n" + textwrap.dedent(program))
    assert len(rows) == len(TEXTS)
    for row, expected in zip(rows, json.loads(text)["data"]):
        assert row == pytest.approx(expected["embedding"], abs=1e-6)


def run(server, client, program):
    """What the program, which has BASE and KEY, prints as JSON."""
    python = client_venv.python(client, *PINS[client])
    text = f"BASE, KEY = {server.url + '/v1'!r}, {KEY!r}\n" + textwrap.dedent(program)
    quiet = {"NO_COLOR": "1", "HF_HUB_OFFLINE": "1", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    done = subprocess.run([python, "-c", text], capture_output=True, text=True, timeout=900, env=os.environ | quiet)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


PERSON = """
    from typing import Literal, Optional
    from pydantic import BaseModel, Field
    class Address(BaseModel):
        street: str = Field(max_length=20)
        number: int = Field(ge=1, le=999)
    class Person(BaseModel):
        '''A person.'''
        name: str = Field(max_length=20, description="how they are called")
        age: int = Field(ge=0, le=120)
        kind: Literal["friend", "foe"]
        home: Optional[Address] = None
        tags: list[Literal["a", "b"]] = Field(max_length=3)
"""


def test_instructor_reads_an_answer_in_its_json_schema_mode(server):
    got = run(server, "instructor", PERSON + """
    import instructor, openai
    client = instructor.from_openai(openai.OpenAI(base_url=BASE, api_key=KEY), mode=instructor.Mode.JSON_SCHEMA)
    person = client.chat.completions.create(model="builtin", response_model=Person, max_retries=0, temperature=0, max_tokens=600,
                                            messages=[{"role": "user", "content": "Jason is 25 years old."}])
    assert isinstance(person, Person)
    print(person.model_dump_json())
    """)
    assert set(got) == {"name", "age", "kind", "home", "tags"}


def test_instructor_reads_an_answer_by_a_tool_and_in_parts(server):
    got = run(server, "instructor", PERSON + """
    import instructor, json, openai
    client = instructor.from_openai(openai.OpenAI(base_url=BASE, api_key=KEY), mode=instructor.Mode.TOOLS)
    ask = dict(model="builtin", temperature=0, max_tokens=600, messages=[{"role": "user", "content": "Jason is 25 years old."}])
    person = client.chat.completions.create(response_model=Person, max_retries=0, **ask)
    parts = list(client.chat.completions.create_partial(response_model=Person, **ask))
    assert parts[-1].model_dump() == person.model_dump()
    text = client.chat.completions.create(response_model=None, **{**ask, "max_tokens": 5}).choices[0].message.content
    print(json.dumps({"n": len(parts), "text": text, "person": person.model_dump()}))
    """)
    assert got["n"] > 1 and got["text"] and set(got["person"]) == {"name", "age", "kind", "home", "tags"}


def test_langchain_reads_an_answer_by_function_calling_and_sends_calls_back(server):
    got = run(server, "langchain", PERSON + """
    import json
    from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI
    model = ChatOpenAI(base_url=BASE, api_key=KEY, model="builtin", temperature=0, max_tokens=600, max_retries=0)
    person = model.with_structured_output(Person, method="function_calling").invoke("Jason is 25 years old.")
    assert isinstance(person, Person)
    streamed = list(model.with_structured_output(Person, method="function_calling").stream("Jason is 25 years old."))[-1]
    assert streamed == person, (streamed, person)

    @tool
    def ready(sure: bool) -> str:
        "Whether it is ready."
        return "yes"
    brief = model.bind(max_tokens=20)
    assert "".join(piece.content for piece in brief.stream("Go on.")) == brief.invoke("Go on.").content
    bound = model.bind_tools([ready], tool_choice="required")
    talk = [SystemMessage("Be brief."), HumanMessage("Is it ready?")]
    for _ in range(2):
        answer = bound.invoke(talk)
        assert answer.tool_calls and all(call["name"] == "ready" for call in answer.tool_calls), answer
        talk += [answer] + [ToolMessage(ready.invoke(call["args"]), tool_call_id=call["id"]) for call in answer.tool_calls]
    print(json.dumps({"person": person.model_dump(), "n": len(talk)}))
    """)
    assert set(got["person"]) == {"name", "age", "kind", "home", "tags"} and got["n"] >= 6


@pytest.mark.parametrize("more", [", parallel_tool_calls=False", ""], ids=["one call an answer", "as it comes"])
def test_an_agent_of_smolagents_calls_its_tools_until_it_answers(server, more):
    """The model knows nothing, so with several calls in an answer it mixes the final one with others, or writes until its last call
    is cut, whose arguments are then no JSON; the agent takes such an answer back and asks again."""
    got = run(server, "smolagents", """
    import json
    from smolagents import OpenAIServerModel, Tool, ToolCallingAgent
    class Ready(Tool):
        name, description = "ready", "Whether it is ready."
        inputs, output_type = {"sure": {"type": "boolean", "description": "whether to look twice"}}, "string"
        def forward(self, sure: bool) -> str:
            seen.append(sure)
            return "yes"
    class Final(Tool):
        name, description = "final_answer", "Ends the task with an answer."
        inputs, output_type = {"answer": {"type": "boolean", "description": "the answer"}}, "boolean"
        def forward(self, answer: bool) -> bool:
            return answer
    seen = []
    model = OpenAIServerModel(model_id="builtin", api_base=BASE, api_key=KEY, temperature=1.0, seed=1, max_tokens=300MORE)
    agent = ToolCallingAgent(tools=[Ready(), Final()], model=model, max_steps=12)
    result = agent.run("Is it ready?", return_full_result=True)
    steps = [s for s in result.steps if "step_number" in s]
    errors = [s["error"] for s in steps if s.get("error")]
    print(json.dumps({"state": result.state, "errors": errors, "seen": seen, "n_calls": sum(len(s.get("tool_calls") or []) for s in steps)}, default=str))
    """.replace("MORE", more))
    expected = () if more else ("any other tool calls than the final answer", "Argument has type 'str' but should be 'boolean'")
    wrong = [e for e in got["errors"] if not any(text in str(e) for text in expected)]
    assert got["state"] == "success" and not wrong, got


def test_litellm_chats_streams_calls_tools_and_obeys_a_schema(server):
    got = run(server, "litellm", PERSON + """
    import json, litellm
    ask = dict(model="hosted_vllm/builtin", api_base=BASE, api_key=KEY, temperature=0, num_retries=0)
    user = [{"role": "user", "content": "Jason is 25 years old."}]
    whole = litellm.completion(messages=user, max_tokens=20, **ask)
    pieces = list(litellm.completion(messages=user, max_tokens=20, stream=True, stream_options={"include_usage": True}, **ask))
    assert "".join(p.choices[0].delta.content or "" for p in pieces if p.choices) == whole.choices[0].message.content
    tool = {"type": "function", "function": {"name": "ready", "parameters": {"type": "object", "properties": {"sure": {"type": "boolean"}}, "required": ["sure"],
                                                                             "additionalProperties": False}}}
    called = litellm.completion(messages=user, tools=[tool], tool_choice="required", max_tokens=200, **ask).choices[0].message
    assert json.loads(called.tool_calls[0].function.arguments)["sure"] in (True, False)
    back = [*user, called.model_dump(), {"role": "tool", "tool_call_id": called.tool_calls[0].id, "content": "yes"}]
    assert litellm.completion(messages=back, tools=[tool], max_tokens=5, **ask).usage.completion_tokens == 5
    person = litellm.completion(messages=user, response_format=Person, max_tokens=600, **ask).choices[0].message.content
    print(Person.model_validate_json(person).model_dump_json())
    """)
    assert set(got) == {"name", "age", "kind", "home", "tags"}


@pytest.mark.parametrize("api", ["chat_completions", "responses"])
def test_an_agent_of_openai_agents_calls_its_tool_and_answers_in_a_type(server, api):
    got = run(server, "agents", PERSON.replace("Optional[Address] = None", "Address") + """
    import asyncio, json
    from agents import Agent, ModelSettings, Runner, function_tool, set_default_openai_api, set_default_openai_client, set_tracing_disabled
    from openai import AsyncOpenAI
    set_tracing_disabled(True)
    set_default_openai_client(AsyncOpenAI(base_url=BASE, api_key=KEY, max_retries=0))
    set_default_openai_api("API")
    seen = []
    @function_tool
    def ready(sure: bool) -> str:
        "Whether it is ready."
        seen.append(sure)
        return "yes"
    settings = ModelSettings(temperature=0, max_tokens=600, tool_choice="required")
    agent = Agent(name="a", model="builtin", tools=[ready], model_settings=settings, tool_use_behavior="stop_on_first_tool")
    async def main():
        first = await Runner.run(agent, "Is it ready?")
        streamed = Runner.run_streamed(agent, "Is it ready?")
        kinds = [e.type async for e in streamed.stream_events()]
        typed = Agent(name="b", model="builtin", output_type=Person, model_settings=ModelSettings(temperature=0, max_tokens=600))
        person = (await Runner.run(typed, "Jason is 25 years old.")).final_output
        print(json.dumps({"seen": seen, "first": first.final_output, "kinds": len(kinds), "person": person.model_dump()}))
    asyncio.run(main())
    """.replace("API", api))
    assert len(got["seen"]) >= 2 and got["first"].startswith("yes") and got["kinds"] > 2 and got["person"]["kind"] in ("friend", "foe")


def test_an_agent_of_pydantic_ai_streams_calls_and_answers_in_a_type(server):
    got = run(server, "pydantic-ai", PERSON.replace("Optional[Address] = None", "Address") + """
    import asyncio, json
    from pydantic_ai import Agent, NativeOutput
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider
    model = OpenAIChatModel("builtin", provider=OpenAIProvider(base_url=BASE, api_key=KEY))
    settings = {"temperature": 0, "max_tokens": 600}
    by_tool = Agent(model, output_type=Person, model_settings=settings, retries=0).run_sync("Jason is 25 years old.").output
    native = Agent(model, output_type=NativeOutput(Person), model_settings=settings, retries=0).run_sync("Jason is 25 years old.").output
    async def stream():
        async with Agent(model, model_settings={"temperature": 0, "max_tokens": 20}).run_stream("Go on.") as result:
            return "".join([t async for t in result.stream_text(delta=True)])
    print(json.dumps({"tool": by_tool.model_dump(), "native": native.model_dump(), "text": asyncio.run(stream())}))
    """)
    assert got["tool"]["kind"] in ("friend", "foe") and got["native"]["kind"] in ("friend", "foe") and got["text"]


def test_dspy_reads_typed_answers(server):
    """It sends schemas and tools only to models that it knows by name."""
    got = run(server, "dspy", """
    import json, dspy
    from typing import Literal
    dspy.configure(lm=dspy.LM("openai/gpt-4o-mini", api_base=BASE, api_key=KEY, temperature=0.0, max_tokens=600, cache=False, num_retries=0),
                   adapter=dspy.JSONAdapter())
    answer = dspy.Predict("question -> answer: Literal['yes', 'no']")(question="Is it ready?")

    def ready(sure: bool) -> str:
        "Whether it is ready."
        return "yes"
    class Ask(dspy.Signature):
        question: str = dspy.InputField()
        tools: list[dspy.Tool] = dspy.InputField()
        calls: dspy.ToolCalls = dspy.OutputField()
    dspy.configure(adapter=dspy.ChatAdapter(use_native_function_calling=True))
    with dspy.context(lm=dspy.settings.lm.copy(tool_choice="required")):
        calls = dspy.Predict(Ask)(question="Is it ready?", tools=[dspy.Tool(ready)]).calls.tool_calls

    class Say(dspy.Signature):
        question: str = dspy.InputField()
        answer: Literal["yes", "no"] = dspy.OutputField()
    stream = dspy.streamify(dspy.Predict(Say), async_streaming=False)
    dspy.configure(adapter=dspy.JSONAdapter())
    pieces = list(stream(question="Is it ready?"))
    print(json.dumps({"answer": answer.answer, "calls": [[c.name, c.args] for c in calls], "n": len(pieces), "last": pieces[-1].answer}))
    """)
    assert got["answer"] in ("yes", "no") and got["last"] == got["answer"] and got["n"] > 1
    assert got["calls"] and all(name == "ready" and set(given) == {"sure"} for name, given in got["calls"])


def test_haystack_chats_streams_calls_tools_and_obeys_a_schema(server):
    got = run(server, "haystack", PERSON.replace("Optional[Address] = None", "Address") + """
    import json
    from haystack.components.generators.chat import OpenAIChatGenerator
    from haystack.dataclasses import ChatMessage
    from haystack.tools import Tool
    from haystack.utils import Secret
    pieces = []
    ask = dict(model="builtin", api_base_url=BASE, api_key=Secret.from_token(KEY), max_retries=0)
    whole = OpenAIChatGenerator(**ask, generation_kwargs={"temperature": 0, "max_tokens": 20}).run([ChatMessage.from_user("Go on.")])["replies"][0]
    streamed = OpenAIChatGenerator(**ask, generation_kwargs={"temperature": 0, "max_tokens": 20}, streaming_callback=lambda c: pieces.append(c.content)).run(
        [ChatMessage.from_user("Go on.")])["replies"][0]
    assert streamed.text == whole.text and "".join(pieces) == whole.text
    tool = Tool(name="ready", description="Whether it is ready.", function=lambda sure: "yes", parameters={
        "type": "object", "properties": {"sure": {"type": "boolean"}}, "required": ["sure"], "additionalProperties": False})
    called = OpenAIChatGenerator(**ask, tools=[tool], generation_kwargs={"temperature": 0, "max_tokens": 200, "tool_choice": "required"}).run(
        [ChatMessage.from_user("Is it ready?")])["replies"][0]
    person = OpenAIChatGenerator(**ask, generation_kwargs={"temperature": 0, "max_tokens": 600, "response_format": Person}).run(
        [ChatMessage.from_user("Jason is 25 years old.")])["replies"][0].text
    print(json.dumps({"calls": [c.arguments for c in called.tool_calls], "person": Person.model_validate_json(person).model_dump()}))
    """)
    assert got["calls"] and all(set(c) == {"sure"} for c in got["calls"]) and got["person"]["kind"] in ("friend", "foe")


def test_llama_index_chats_streams_calls_tools_and_reads_structured_answers(server):
    got = run(server, "llama-index", PERSON.replace("Optional[Address] = None", "Address") + """
    import json
    from llama_index.core.llms import ChatMessage
    from llama_index.core.tools import FunctionTool
    from llama_index.llms.openai_like import OpenAILike
    llm = OpenAILike(model="builtin", api_base=BASE, api_key=KEY, is_chat_model=True, is_function_calling_model=True, temperature=0, max_tokens=600,
                     max_retries=0, context_window=16384)
    whole = llm.chat([ChatMessage("Go on.")], max_tokens=20).message.content
    assert "".join(p.delta or "" for p in llm.stream_chat([ChatMessage("Go on.")], max_tokens=20)) == whole
    def ready(sure: bool) -> str:
        "Whether it is ready."
        return "yes"
    tool = FunctionTool.from_defaults(ready)
    calls = llm.get_tool_calls_from_response(llm.chat_with_tools([tool], "Is it ready?", tool_required=True))
    person = llm.as_structured_llm(Person).complete("Jason is 25 years old.").raw
    print(json.dumps({"calls": [[c.tool_name, c.tool_kwargs] for c in calls], "person": person.model_dump()}))
    """)
    assert got["person"]["kind"] in ("friend", "foe") and got["calls"] and all(name == "ready" and set(given) == {"sure"} for name, given in got["calls"])


EMBEDDINGS = {
    "litellm": """
        import litellm
        rows = [r["embedding"] for r in litellm.embedding("hosted_vllm/bert", input=TEXTS, api_base=BASE, api_key=KEY, num_retries=0).data]
        """,
    "langchain": """
        from langchain_openai import OpenAIEmbeddings
        model = OpenAIEmbeddings(model="bert", base_url=BASE, api_key=KEY, check_embedding_ctx_length=False, max_retries=0)
        rows = [*model.embed_documents(TEXTS[:1]), model.embed_query(TEXTS[1])]
        """,
    "pydantic-ai": """
        from pydantic_ai import Embedder
        from pydantic_ai.embeddings.openai import OpenAIEmbeddingModel
        from pydantic_ai.providers.openai import OpenAIProvider
        model = Embedder(OpenAIEmbeddingModel("bert", provider=OpenAIProvider(base_url=BASE, api_key=KEY)))
        rows = [list(r) for r in model.embed_documents_sync(TEXTS).embeddings]
        """,
    "dspy": """
        import dspy
        rows = dspy.Embedder("openai/bert", api_base=BASE, api_key=KEY, caching=False)(TEXTS).tolist()
        """,
    "haystack": """
        from haystack.components.embedders import OpenAITextEmbedder
        from haystack.utils import Secret
        model = OpenAITextEmbedder(model="bert", api_base_url=BASE, api_key=Secret.from_token(KEY), max_retries=0)
        rows = [model.run(text)["embedding"] for text in TEXTS]
        """,
    "llama-index": """
        from llama_index.embeddings.openai_like import OpenAILikeEmbedding
        model = OpenAILikeEmbedding(model_name="bert", api_base=BASE, api_key=KEY, max_retries=0)
        rows = model.get_text_embedding_batch(TEXTS)
        """,
}


@pytest.mark.parametrize("client", EMBEDDINGS)
def test_a_client_gets_the_rows_of_its_texts(embedder, client):
    check_rows(embedder, client, textwrap.dedent(EMBEDDINGS[client]) + "print(json.dumps(rows))")

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

pytestmark = pytest.mark.skipif(os.environ.get("QUIRE_TEST_LONG") != "1", reason="of make test-long")
PINS = {
    "instructor": ["instructor==1.17.0", "openai==3.3.0"],
    "langchain": ["langchain-openai==1.7.4", "langchain-core==1.8.3", "openai==3.57.0"],
    "smolagents": ["smolagents[openai]==1.26.0", "openai==3.57.0"],
}


@pytest.fixture(scope="module")
def server(quire, tmp_path_factory):
    """The built-in model with room for the prompts of an agent."""
    path = tmp_path_factory.mktemp("clients") / "model"
    shutil.copytree("models/builtin-hf", path)
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 16384}))
    s = Server(str(path), "--api-key", KEY, "--served-model-name", "builtin", "--enable-auto-tool-choice")
    yield s
    assert s.stop() == 0


def run(server, client, program):
    """What the program, which has BASE and KEY, prints as JSON."""
    python = client_venv.python(client, *PINS[client])
    text = f"BASE, KEY = {server.url + '/v1'!r}, {KEY!r}\n" + textwrap.dedent(program)
    done = subprocess.run([python, "-c", text], capture_output=True, text=True, timeout=300, env=os.environ | {"NO_COLOR": "1", "HF_HUB_OFFLINE": "1"})
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
    """The model knows nothing, so with several calls in an answer it mixes the final one with others, which the agent takes back and asks again."""
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
    wrong = [e for e in got["errors"] if "any other tool calls than the final answer" not in str(e) or more]
    assert got["state"] == "success" and not wrong, got

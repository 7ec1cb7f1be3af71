"""SGLang's examples of programs, as its documentation has them, run by the interpreter that has the package `sglang`:
sglang_programs.py URL KEY. Prints a JSON object: for each program its text and variables."""
import json
import sys

import sglang as sgl

DIGITS = ["one", "two", "three"]


@sgl.function
def multi_turn_question(s, question_1, question_2):
    s += sgl.system("You are a helpful assistant.")
    s += sgl.user(question_1)
    s += sgl.assistant(sgl.gen("answer_1", max_tokens=16))
    s += sgl.user(question_2)
    s += sgl.assistant(sgl.gen("answer_2", max_tokens=16))


@sgl.function
def tip_suggestion(s):
    s += "Here are two tips for staying healthy: 1. Balanced Diet. 2. Regular Exercise.\n\n"
    forks = s.fork(2)
    for i, f in enumerate(forks):
        f += f"Now, expand tip {i + 1} into a paragraph:\n"
        f += sgl.gen("detailed_tip", max_tokens=24, stop="\n\n")
    s += "Tip 1:" + forks[0]["detailed_tip"] + "\n"
    s += "Tip 2:" + forks[1]["detailed_tip"] + "\n"
    s += "In summary" + sgl.gen("summary", max_tokens=16)


@sgl.function
def self_consistency(s, question):
    s += "Question: " + question + "\nAnswer:"
    forks = s.fork(3)
    for i, f in enumerate(forks):
        f += f" let us think ({DIGITS[i]})." + sgl.gen("thought", max_tokens=12, temperature=0)
        f += "\nSo it is" + sgl.gen("answer", max_tokens=4, stop=".")
    forks.join()
    s += "\nThe answers were:" + ",".join(f["answer"] for f in forks) + "\nThe best is" + sgl.select("best", choices=[" first", " second", " third"])


@sgl.function
def tree_of_thought(s, question):
    s += "Problem: " + question + "\n"
    plans = s.fork(2)
    for i, plan in enumerate(plans):
        plan += f"Plan {i + 1}:" + sgl.gen("plan", max_tokens=8)
        steps = plan.fork(2)
        for k, step in enumerate(steps):
            step += f"\nStep {k + 1}:" + sgl.gen("step", max_tokens=8)
        plan += "\nDone:" + steps[0]["step"] + steps[1]["step"]
        plan += "\nScore:" + sgl.gen("score", max_tokens=2)
    s += "Plans:" + plans[0]["plan"] + plans[1]["plan"] + "\nResult:" + sgl.gen("result", max_tokens=8)


@sgl.function
def tool_use(s, question):
    s += "To answer this question: " + question + ". "
    s += "I need to use a " + sgl.gen("tool", choices=["calculator", "search engine"]) + ". "
    if s["tool"] == "calculator":
        s += "The math expression is" + sgl.gen("expression", max_tokens=8)
    else:
        s += "The key word to search is" + sgl.gen("word", max_tokens=8)


CHARACTER = (r"""\{\n""" + r"""    "name": "[\w\d\s]{1,16}",\n""" + r"""    "house": "(Gryffindor|Slytherin|Ravenclaw|Hufflepuff)",\n""" +
             r"""    "age": [0-9]{1,2}\n""" + r"""\}""")


@sgl.function
def character_gen(s, name):
    s += name + " is a character in a book. Please fill in the following information about it.\n"
    s += sgl.gen("json_output", max_tokens=128, regex=CHARACTER)


@sgl.function
def typed(s):
    s += "The number of hills is" + sgl.gen("number", dtype=int, max_tokens=4) + " and it is" + sgl.gen("truth", dtype=bool, max_tokens=4)


@sgl.function
def schema(s):
    s += "As JSON: " + sgl.gen("object", max_tokens=64, json_schema=json.dumps({"type": "object", "properties": {"good": {"type": "boolean"}}, "required": ["good"]}))


def choose(method):
    @sgl.function
    def chosen(s, question):
        s += "Question: " + question + "\nAnswer:"
        s += sgl.select("answer", choices=[" the prince", " the old man", " of", " Paris"], choices_method=method)
        s += ", and" + sgl.gen("more", max_tokens=4)
    return chosen


@sgl.function
def healed(s):
    s += "The capital of France is the town of Par"
    s += sgl.select("end", choices=["is", "rot", "ty"])


@sgl.function
def with_logprobs(s):
    s += "Once upon a time" + sgl.gen("word", max_tokens=3, return_logprob=True, top_logprobs_num=2, logprob_start_len=1, return_text_in_logprobs=True)


METHODS = {"token_length": sgl.token_length_normalized, "greedy": sgl.greedy_token_selection, "unconditional": sgl.unconditional_likelihood_normalized}


def shown(state):
    text = state.text()  # waits for all of it
    variables = dict(state.stream_executor.variables)
    return {"text": text, "variables": variables, "meta": {n: state.get_meta_info(n) for n in variables if state.stream_executor.meta_info.get(n)}}


def main(url, key):
    backend = sgl.RuntimeEndpoint(url, api_key=key)
    sgl.set_default_backend(backend)
    out = {"model": backend.get_model_name(), "server": sorted(sgl.get_server_info())}
    sgl.flush_cache()
    greedy = {"temperature": 0}
    out["multi_turn"] = shown(multi_turn_question.run("Who is the prince?", "And the old man?", **greedy))
    out["parallel_tips"] = shown(tip_suggestion.run(**greedy))
    out["self_consistency"] = shown(self_consistency.run("How many hills are there?", **greedy))
    out["tree_of_thought"] = shown(tree_of_thought.run("How does one leave the town?", **greedy))
    out["tool_use"] = shown(tool_use.run("What is two plus two?", **greedy))
    out["json"] = shown(character_gen.run("The prince", **greedy))
    out["typed"] = shown(typed.run(**greedy))
    out["schema"] = shown(schema.run(**greedy))
    for name, method in METHODS.items():
        out["select_" + name] = shown(choose(method).run("Who looked at her?", **greedy))
    out["healed"] = shown(healed.run(**greedy))
    out["logprobs"] = shown(with_logprobs.run(**greedy))
    state = multi_turn_question.run("Who is the prince?", "And the old man?", stream=True, **greedy)
    pieces = list(state.text_iter())
    out["streaming"] = {**shown(state), "pieces": pieces}
    batch = multi_turn_question.run_batch([{"question_1": q, "question_2": "Why?"} for q in ("Who is the prince?", "Where is the town?")], num_threads=2, **greedy)
    out["batch"] = [shown(b)["text"] for b in batch]
    refused = []
    for call in (backend.start_profile, lambda: backend.concatenate_and_append(["a"], "b")):
        try:
            call()
            refused.append("")
        except RuntimeError as e:
            refused.append(str(e))
    out["refused"] = refused
    json.dump(out, sys.stdout, indent=1)


main(*sys.argv[1:])

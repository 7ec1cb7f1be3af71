"""What tools/experiments.py runs: each command, the published figures to hold its own beside, and why they differ; and the published figures that have
none here, with the reason. F, L, W, R, B and X are the ids of golden/published.md; K is Kwon et al. 2023 (arXiv:2309.06180), by section or figure."""
import dataclasses
import typing


@dataclasses.dataclass
class Held:
    ids: str
    what: str
    published: typing.Any  # a number, (low, high), or words
    here: typing.Any       # the same, or a function of the Output
    why: str


@dataclasses.dataclass
class Experiment:
    name: str
    command: str
    held: list = dataclasses.field(default_factory=list)
    quick: str = ""                # with less work; empty: the same
    before: list = dataclasses.field(default_factory=list)  # lines of a shell that make its files
    each_processor: bool = False   # a table for each processor at hand

    def __post_init__(self):
        self.quick = self.quick or self.command.replace("--runs 5", "--runs 1").replace("--runs 3", "--runs 1").replace("--runs 2", "--runs 1")


def cell(row, title, nth=1):
    return lambda out: out.value(row, title, nth)


def range_of(title, rows, nth=1):
    """The least and the largest of some cells."""
    def both(out):
        values = [out.value(row, title, nth) for row in rows]
        return min(values), max(values)
    return both


def quotient(a, b):
    """Of two cells."""
    return lambda out: out.value(*a) / out.value(*b)


def line(pattern):
    return lambda out: out.found(pattern)


def number(pattern, factor=1):
    return lambda out: float(out.found(pattern)) * factor


def all_of(title, rows, nth=1):
    return lambda out: ", ".join(f"{out.value(row, title, nth):g}" for row in rows)


SHAREGPT, ALPACA = (f"quire bench serving --described opt-13b,a100-40gb --lengths {kind} --rate {rate} --requests 2000 --slo token=0.2 --cost-per-hour 2"
                    for kind, rate in (("sharegpt", 2), ("alpaca", 30)))
SMALL_MODEL = "a model of 2.8M parameters on one CPU core, instead of billions on a GPU"

BATCHING = [
    Experiment("demo-schedule", "quire demo schedule"),
    Experiment("ablation-batching", "quire bench ablation batching -t 1 --runs 3", [
        Held("R21", "continuous batching against static, tokens/s", (1.3, 1.5), quotient(("continuous, paged", "tokens/s"), ("static, padded", "tokens/s")),
             "published on a GPU, whose steps cost the same at any batch size; on a CPU every padded or dead row costs time, and there are 1.2 per useful row"),
        Held("R6", "% of reserved memory used, maximum reserved", 20.4, cell("iteration, max", "used %"), "depends on the lengths"),
        Held("W1 F26 R3", "% of memory wasted, maximum reserved", (60, 80), lambda o: 100 - o.value("iteration, max", "used %"), "depends on the lengths"),
        Held("R6", "% used, a known length reserved", 38.2, cell("iteration, oracle", "used %"),
             "the lengths vary less here, and gaps between pieces do not count as reserved"),
    ]),
]

MEMORY = [
    Experiment("bench-pages", "quire bench pages -t 1 --runs 3", [
        Held("R18 L4", "best page", 16, number(r"^best: (\d+)"), "16 to 64 are alike within some percent here: the fastest of those under 4% waste changes from run to run"),
        Held("W7", "pages recommended", "16 to 32", lambda o: f"16: {o.value('16', 'of best'):.2f}, 32: {o.value('32', 'of best'):.2f} of the best", "shorter pages are slow since their keys are gathered for the vector units"),
        Held("F7", "page recommended for its gather", "64 to 128", lambda o: f"64: {o.value('64', 'of best'):.2f}, 128: {o.value('128', 'of best'):.2f} of the best",
             "as fast, but 64 waste more than 4% of such lengths"),
        Held("W1 R3 R6", "% wasted, pages of 16", (0, 4), cell("16", "wasted %"), "last pages only"),
        Held("L5", "mean tail at page 16, slots", 7.5, cell("16", "tail slots"), "(B - 1) / 2; these 16 lengths leave a little less"),
    ]),
    Experiment("bench-memory", "quire bench memory"),
    Experiment("bench-memory-7b", "quire bench memory --shape 32,32,128 --weights 13476831232 --pages 16,64,128 --max-model-len 32768", [
        Held("F12", "overhead, % of weights and KV, 16 prompts of 500 to 8000, page 64", (0, 5), cell("pages of 64", "+weights"), "a goal there; counted here, at its model's shape"),
        Held("F12", "the same, page 128", (0, 5), cell("pages of 128", "+weights"), "the same reason"),
        Held("F7 F12", "% of the KV alone, pages of 64 and 128", "no values", lambda o: f"{o.value('pages of 64', 'of KV'):.2f}, {o.value('pages of 128', 'of KV'):.2f}", "a grid of page sizes is announced there, not published"),
        Held("R25", "bytes of 1,000 tokens", 524288000, number(r": (\d+) bytes a token", 1000), "the bytes are lost there; the formula's result"),
        Held("F15", "% of weights and KV at 2048 tokens", 1, lambda o: 100 / (1 + 13476.8e6 / (2048 * float(o.found(": ([0-9]+) bytes a token")))), "the same reason"),
        Held("F15", "MB a layer at 2048 tokens", 160, number(r": (\d+) bytes a token", 2048 / 32 / 1e6), "published wrong: by its own 1% of the total all layers together have 160 MB"),
        Held("F3", "GB of a sequence of 100,000 tokens", "52.4 (computed)", lambda o: f"{100000 * float(o.found(': ([0-9]+) bytes a token')) / 1e9:.1f}", "fits neither of the GPUs named there"),
    ]),
    Experiment("bench-memory-grouped", "quire bench memory --shape 32,8,128 --pages 16 --max-model-len 8192", [
        Held("W5", "bytes of 99 tokens", 12976128, number(r": (\d+) bytes a token", 99), "a count"),
        Held("R27", "bytes a token of 64 KV heads over those of 8", (4, 8), lambda o: 2 * 32 * 64 * 128 * 2 / float(o.found(r": ([0-9]+) bytes a token")), "heads / KV heads, whatever the layers"),
    ]),
    Experiment("bench-memory-int8", "quire bench memory --shape 32,32,128 --kv-dtype int8 --pages 16 --max-model-len 8192", [
        Held("R22", "tokens for the same memory, one byte a value", 2, lambda o: 524288 / float(o.found(r": ([0-9]+) bytes a token")), "int8 instead of FP8, and one scale per row"),
    ]),
]

def gains_of(out):
    """Tokens a second with the prefix cache over those without, of the kinds of work that are published of SGLang."""
    return [out.value(f"{w} token", "tokens/s") / out.value(f"{w} none", "tokens/s") for w in ("chatbot", "mmlu5", "gsm8k", "react", "json", "long", "chat")]


REUSE = [
    Experiment("bench-sharing", "quire bench sharing -t 1 --runs 2", [
        Held("K 6.3", "% of memory saved, Alpaca, 2 to 6 samples", (6.1, 9.8), range_of("saved %", [f"alpaca samples {n}" for n in (2, 4, 6)]), "every prompt here has the mean length, so one page in five is shared"),
        Held("K 6.3", "% saved, Alpaca, 2 to 6 beams", (37.6, 55.2), range_of("saved %", [f"alpaca beams {n}" for n in (2, 4, 6)]), "two beams of so short a prompt part soon"),
        Held("K 6.3", "% saved, ShareGPT, 2 to 6 samples", (16.2, 30.5), range_of("saved %", [f"sharegpt samples {n}" for n in (2, 4, 6)]), "answers are twice as long as prompts here"),
        Held("K 6.3", "% saved, ShareGPT, 2 to 6 beams", (44.3, 66.3), range_of("saved %", [f"sharegpt beams {n}" for n in (2, 4, 6)]), "agrees"),
        Held("R17", "gain by sharing, parallel samples, 2 to 6", (1.3, 2), range_of("both", [f"{kind} samples {n}" for kind in ("alpaca", "sharegpt") for n in (2, 4, 6)]),
             "at equal memory: more sequences fit, and prompts are computed once; on a CPU a step costs as much as its rows"),
    ]),
    Experiment("bench-sharing-beams", "quire bench sharing --samples 4 --prompt 64 --output 11 -t 1 --runs 2", [
        Held("L10 L12", "pages, 4 continuations of 64 tokens, 10 tokens each", 12, cell("given samples 4", "shared"), "4 + 4 x 1: ten tokens on a page's border take one page, not two; its own code gives 8"),
        Held("L10", "without sharing", 16, cell("given samples 4", "pages apart"), "16 leaves out the new tokens"),
        Held("L10", "saved", 1.33, quotient(("given samples 4", "pages apart"), ("given samples 4", "shared")), "20 / 8"),
    ]),
    Experiment("bench-sharing-prefix", "quire bench sharing --samples 4 --prompt 256 --output 11 -t 1 --runs 2", [
        Held("L11", "pages, a prompt of 256 by four", 16, cell("given samples 4", "shared"), "16 and one each for the new tokens"),
        Held("L11", "without sharing", 64, cell("given samples 4", "pages apart"), "64 and one each"),
    ]),
    Experiment("demo-radix", "quire demo radix", [
        Held("R20", "states of a tree in its figure", 9, lambda o: float(sum(line[:1].isdigit() for line in o.lines)), "the same nine kinds of states; the picture itself is not published"),
        Held("R32", "an insert that shares a part: split, then the least recently used leaf goes", "ids lost", lambda o: f"states {o.found('^([0-9]+) .*splits')} and {o.found('^([0-9]+) .*unused longest')}", "shown with the real tree"),
    ]),
    Experiment("bench-workload", "quire bench workload -t 1", [
        Held("R7", "few-shot MMLU against no reuse, tokens/s", 4.4, quotient(("mmlu5 token", "tokens/s"), ("mmlu5 none", "tokens/s")), "published against the vLLM of that time, here against this engine without its cache; 84% of the prompts are shared"),
        Held("R8", "ReAct agents", 5.6, quotient(("react token", "tokens/s"), ("react none", "tokens/s")), "the same reason"),
        Held("R9", "GSM8K", 4.5, quotient(("gsm8k token", "tokens/s"), ("gsm8k none", "tokens/s")), "the same reason; answers of 100 tokens gain nothing"),
        Held("R10", "long contexts", (1.2, 2.9), quotient(("long token", "tokens/s"), ("long none", "tokens/s")), "twelve questions about two documents: more is shared than there"),
        Held("R11", "most of these kinds", 6.4, lambda o: max(gains_of(o)), "by the share of prompts in the work"),
        Held("R12", "all of these kinds", (2, 5), lambda o: (min(gains_of(o)), max(gains_of(o))), "least where answers are most of the work (json)"),
        Held("R34", "prompt tokens computed of 16,240: 8 users, a system prompt of 2,000, 30 each", "a workload, no figure", cell("chatbot token", "computed"), "2,000 once and 30 each"),
        Held("X1", "coding agents: ideal hit rate, %", 94.2, cell("agents none", "ideal %"), "33 turns each here; the published median is 33"),
        Held("X1", "coding agents: hit rate reached with room for all, %", 92.2, cell("agents token", "hit %"), "matched by token, not by page; published with a store shared by all"),
        Held("X1", "coding agents: throughput by the cache", 3.8, quotient(("agents token", "tokens/s"), ("agents none", "tokens/s")), "published on 12 GPUs, from a hit rate of 1.7%; here from 0%, on a CPU where prompts are nearly all of the work"),
        Held("X1", "coding agents: time to the first token, times shorter", 46, quotient(("agents none", "first ms"), ("agents token", "first ms")), "a mean, not the median, and without the queue of a loaded server"),
    ], quick="quire bench workload chatbot -t 1"),
    Experiment("bench-programs", "quire bench workload --as program,requests,no-cache --data ../shared/data --runs 5", [
        Held("R7", "few-shot MMLU, times no reuse", 4.4, cell("mmlu5 program", "of no-cache"), "published against the vLLM of that time, here against this engine without its cache, with parallel calls"),
        Held("R8", "ReAct agents", 5.6, cell("react program", "of no-cache"), "the same reason; thoughts of 48 tokens gain nothing"),
        Held("R9", "GSM8K", 4.5, cell("gsm8k program", "of no-cache"), "the same reason; answers of 100 tokens and more gain nothing"),
    ]),
    Experiment("bench-ablation", "quire bench ablation -t 1 --runs 2", [
        Held("R19", "the tree alone, off", "named, no values", lambda o: f"{o.value('gsm8k --prefix-cache none', 'of all'):.2f} (gsm8k), {o.value('unique --prefix-cache none', 'of all'):.2f} (unique)", "no values to compare; what shares nothing loses nothing by it"),
        Held("R19", "the compressed automaton alone, off", "named, no values", lambda o: f"{o.value('forced --no-jump-forward', 'steps'):.0f} steps in place of {o.value('forced all on', 'steps'):.0f}", "here a jump saves steps and logits; on a GPU it saves whole reads of the weights"),
        Held("R19", "the cache-aware order, off", "named, no values", lambda o: f"{o.value('long --schedule fcfs', 'of all'):.2f} of the speed", "where the pool is short. The third that is named there, API speculation, guesses calls of a model behind an API: nothing to switch off here"),
    ], quick="quire bench ablation chat -t 1"),
]

MODEL = [
    Experiment("demo-snapshot", "quire demo snapshot", [
        Held("B23", "paged against contiguous, 8 prompts", "bit-identical", lambda o: "{:g} of {:,.0f} logits differ".format(*(sum(o.value(f"{p} 1820", title) for p in (1, 4, 16, 64, 256)) for title in ("different", "compared"))), "the sampling rule is not stated there"),
    ]),
    Experiment("perplexity", "quire perplexity builtin text.txt --kv paged,contiguous,none --context 512 -t 1", [
        Held("F20", "perplexity, contiguous less paged", 0.01, lambda o: f"{o.value('contiguous', 'perplexity') - o.value('paged', 'perplexity'):.4f}", "published: 7.32 and 7.31, called identical; here every log-probability is compared bit by bit"),
    ], before=["head -c 100000 ../shared/data/text/war-and-peace.txt > text.txt"]),
    Experiment("perplexity-gemma", "quire perplexity ../real/gemma-3-270m-q4_k_m.gguf text.txt --kv paged,contiguous --context 512", [
        Held("F20", "perplexity, contiguous less paged, Gemma 3 270M", 0.01, lambda o: f"{o.value('contiguous', 'perplexity') - o.value('paged', 'perplexity'):.4f}", "the same reason"),
    ], quick="quire perplexity builtin text.txt --kv paged,contiguous --context 512 -t 1", before=["head -c 20000 ../shared/data/text/war-and-peace.txt > text.txt"]),
    Experiment("perplexity-wikitext", "quire perplexity builtin wiki.txt --kv paged,contiguous --context 512 -t 1", [
        Held("F20", "perplexity on WikiText", "7.32, 7.31 (LLaMA-7B, WikiText-103)", lambda o: f"{o.value('contiguous', 'perplexity'):.2f}, {o.value('paged', 'perplexity'):.2f}", "a model of 2.8M trained on other texts, on WikiText-2"),
    ], before=["head -c 100000 ../shared/data/text/wiki.test.raw > wiki.txt"]),
    Experiment("sweep-answers", "quire demo sweep --context 12 --batch 1 --lengths 32,128,512,1024 -t 1 --runs 3", [
        Held("B1 B9", "ms a token at 1024 against 128 new tokens", 33.11 / 32.57, quotient(("1 12 1024", "ms/token"), ("1 12 128", "ms/token")), "published with 8 GB of weights, whose reads hide those of the cache; here the weights take 3 MB, and attention over 1,000 tokens is most of a step"),
        Held("B1", "ms a token, 128 new tokens", 32.57, cell("1 12 128", "ms/token"), SMALL_MODEL),
        Held("B1", "ms to the first token", 34, cell("1 12 128", "first ms"), SMALL_MODEL),
        Held("B9", "peak, MiB a token from 32 to 1024", 0.142, lambda o: (o.value("1 12 1024", "peak MiB") - o.value("1 12 32", "peak MiB")) / 992, "1,536 bytes a token against 147,456"),
    ]),
    Experiment("sweep-batch", "quire demo sweep --context 8 --batch 1,2,4,8,16,32 --lengths 128 -t 1 --runs 3", [
        Held("B2 B10", "16 sequences against one, tokens/s", 16.0, quotient(("16 8 128", "tokens/s"), ("1 8 128", "tokens/s")), "a GPU's step costs the same at any of these batch sizes; a CPU core is compute-bound from a few rows on"),
        Held("B2", "ms a token at 16 against 1", 1.0, quotient(("16 8 128", "ms/token"), ("1 8 128", "ms/token")), "the same reason"),
        Held("B27", "32 users: 30 to 600 tokens/s, times", 20, quotient(("32 8 128", "tokens/s"), ("1 8 128", "tokens/s")), "an example there, not a measurement"),
    ]),
    Experiment("bench-latency", "quire bench latency -t 1 --runs 3", [
        Held("F18 F23", "a token with the cache, 2048 against 128 before it", 2, quotient(("2048", "paged ms/token"), ("128", "paged ms/token")), "the built-in shape: weights of 3 MB, so attention shows as much"),
        Held("F19", "a token without, for each doubling of the length", 10, lambda o: (o.value("2048", "all again ms") / o.value("128", "all again ms")) ** 0.25, "recomputation costs 2 to 4 times as much per doubling, as our remark in the list of published figures says"),
        Held("F24", "paged against contiguous, ms a token at 2048", "lower throughout; a slight increase", cell("2048", "ratio"), "the picture is lost and text and caption disagree; mean of three runs"),
        Held("F25", "absolute ms to the first token at 2048", "announced, none published", cell("2048", "first ms"), SMALL_MODEL),
    ]),
    Experiment("bench-latency-long", "quire bench latency -t 1 --runs 3 --context 8192,16384 --decode 64", [
        Held("F24", "paged against contiguous at 8192", "lower throughout; a slight increase", cell("8192", "ratio"), "longer than anything published there"),
    ]),
]

GUESSES = "quire bench serving --described llama-3-70b,4xh100-80gb --rate 0.5 --requests 500 --kv-tokens 16384 --acceptance 0.8,0.8,0.8,0.8 --swap-space 64 --slo token=0.03"
STATIC_GAIN = quotient(("continuous paged none", "slo req/s"), ("static max none", "slo req/s"))


def larger_opt(model, device, rate):
    """R3 is of OPT-13B to OPT-175B, each on the devices of R1."""
    command = f"quire bench serving --described {model},{device} --lengths sharegpt --rate {rate} --requests 1000 --slo token=0.2 --cost-per-hour 2"
    return Experiment(f"serving-{model}", command, [
        Held("R1 R3", f"{model.upper()}: pages against the maximum reserved", (2, 4), number(r"pages stand ([\d.]+) times"), "the less memory the weights leave, the more pages gain"),
    ], quick=command.replace("1000 --slo", "200 --slo"))


SERVING = [
    Experiment("serving-sharegpt", SHAREGPT, [
        Held("R3 F27", "pages against the maximum reserved", (2, 4), number(r"pages stand ([\d.]+) times"), "a described device; F27 quotes it for prompts of 32k, which no other text does"),
        Held("R4", "pages against static batches, up to", 22, STATIC_GAIN, "published against FasterTransformer, which batches whole requests and reserves the longest sequence for each"),
        Held("R5", "pages against known lengths", (1.7, 2.7), number(r"reserved, ([\d.]+) times"), "no gaps between pieces are counted against the oracle here"),
        Held("R6", "% used, maximum reserved", 20.4, cell("iteration max", "KV live%"), "agrees"),
        Held("R6", "% used, paged", (96, 100), cell("continuous paged none", "KV live%"), "agrees"),
        Held("W2", "pages against a baseline without a name", 24, number(r"pages stand ([\d.]+) times"), "waste alone yields 2.4 to 4.8 times"),
    ], quick=SHAREGPT.replace("2000 --slo", "300 --slo")),
    Experiment("serving-alpaca", ALPACA, [
        Held("R3", "pages against the maximum reserved", (2, 4), number(r"pages stand ([\d.]+) times"), "short answers in room for 2048 waste most; published over all data sets"),
        Held("R4", "pages against static batches, up to", 22, STATIC_GAIN, "published for ShareGPT's lengths, which are seven times as long"),
        Held("R5", "pages against known lengths", (1.7, 2.7), number(r"reserved, ([\d.]+) times"), "published for ShareGPT; with short answers both serve all that comes"),
    ], quick=ALPACA.replace("2000 --slo", "300 --slo")),
    larger_opt("opt-66b", "4xa100-40gb", 2),
    larger_opt("opt-175b", "8xa100-80gb", 2),
    Experiment("serving-guesses", GUESSES, [
    ], quick=GUESSES.replace("--requests 500", "--requests 100")),
]


def price_of_pieces(heads, why):
    """Attention over pages of 16 against contiguous memory, beside the same for a loop that only reads the same pieces."""
    row = f"{heads} 8192 16"
    return Held("L8", f"pages of 16 against contiguous, {heads}: attention, and reading alone", (1.0, 1.03),
                lambda o: f"{o.value(row, '/contiguous'):.2f}, {o.value(row, '/contiguous', 3):.2f}", why)


KERNELS = [
    Experiment("bench-kv", "quire bench kv --pages 4096,65536 --threads 1,2", [
        Held("F12", "time of an allocation", "microseconds (a goal)", lambda o: f"{o.value('reserve 65536 1', 'ns'):.0f} ns", "never published"),
        Held("W8", "popleft, append and remove in O(1)", "no measurement", lambda o: f"{o.value('reserve 4096 1', 'ns'):.0f} and {o.value('reserve 65536 1', 'ns'):.0f} ns with 4,096 and 65,536 pages", "a bitmap instead of a doubly linked list"),
        Held("F8", "lock-free free list, two threads on two cores: CPU time a page against one", "no measurement", lambda o: f"{o.word('reserve 4096 2', 'to one')}, {o.word('reserve 65536 2', 'to one')}", "with 4,096 and 65,536 pages; at most 1.3 is the goal"),
        Held("F8", "the same against two threads with a pool each", "no measurement", lambda o: f"{o.value('reserve 65536 2', 'ns/apart'):.2f}, with 4,096 pages {o.value('reserve 4096 2', 'ns/apart'):.2f}", "what sharing one pool costs: threads keep to regions of their own"),
    ], each_processor=True),
    Experiment("bench-attention", "quire bench attention -t 1 --context 1024,8192 --prompt 2048 --runs 5", [
        Held("L8", "time of a decoded token over pages of 16, BF16, 32/4 heads, 8192 tokens", (1.0, 1.03), lambda o: o.value("decode BF16 32/4 x 64 1 8192", "paged/contiguous"),
             "attention alone here, a whole step on a GPU there; the goal here is 1.03"),
        Held("L8", "the same, int8", (1.0, 1.03), lambda o: o.value("decode I8 32/4 x 64 1 8192", "paged/contiguous"), "1 KB of a head in a page: see the table by page size"),
    ], each_processor=True),
    Experiment("bench-attention-pages", "quire bench attention --pages 16,32,64,256 -t 1 --context 8192 --kv-dtype bf16,int8 --runs 7", [
        price_of_pieces("BF16 32/4 x 64", "2 KB, two heads together"),
        price_of_pieces("BF16 32/32 x 128", "4 KB, prefetched two heads together; no query shares what is read, so memory is the bound"),
        price_of_pieces("I8 32/4 x 64", "1 KB, two heads together"),
        price_of_pieces("I8 32/32 x 128", "2 KB; arithmetic hides it"),
    ], each_processor=True),
]

TRACES = "../shared/data/traces/mooncake"
SYSTEM_PROMPT = ("awk 'BEGIN { for (i = 0; i < 1000; i++) printf \"{\\\"t\\\": %g, \\\"prompt\\\": [[\\\"system\\\", 2000], [\\\"user %d\\\", 30]], \\\"output\\\": 150}\\n\", i / 5, i }' > system.jsonl")
DRAFT_MODEL = "quire bench speculation -t 1 -n 257 --temperature 0.7 --speculative-config '{\"method\":\"draft_model\",\"model\":\"builtin-small\",\"num_speculative_tokens\":4%s}'"

SIMULATED = [
    Experiment("sim-conversation", f"quire sim {TRACES}/conversation_trace_first6000.jsonl --policy all --svg ../docs/sim-conversation-16.svg",
               quick=f"quire sim {TRACES}/conversation_trace_first6000.jsonl --policy lru,gdsf --limit 500"),
    Experiment("sim-synthetic", f"quire sim {TRACES}/synthetic_trace.jsonl --policy all --svg ../docs/sim-synthetic-16.svg",
               quick=f"quire sim {TRACES}/synthetic_trace.jsonl --policy lru,gdsf --limit 500"),
    Experiment("sim-conversation-512", f"quire sim {TRACES}/conversation_trace_first6000.jsonl --policy all --page-size 512 --svg ../docs/sim-conversation-512.svg",
               quick=f"quire sim {TRACES}/conversation_trace_first6000.jsonl --policy lru,gdsf --page-size 512 --limit 500"),
    Experiment("serving-prefix", "quire bench serving --described llama-3-8b,a100-80gb --trace system.jsonl --slo first=1,gap=0.05 --cost-per-hour 2", before=[SYSTEM_PROMPT],
               quick="quire bench serving --described llama-3-8b,a100-80gb --trace system.jsonl --requests 100 --slo first=1,gap=0.05 --cost-per-hour 2"),
    Experiment("serving-mooncake", f"quire bench serving --described llama-3-70b,8xa100-80gb --trace {TRACES}/synthetic_trace.jsonl --requests 600 --speed 0.02 --max-model-len 131072 --slo first=20,gap=0.2",
               quick=f"quire bench serving --described llama-3-70b,8xa100-80gb --trace {TRACES}/synthetic_trace.jsonl --requests 100 --speed 0.02 --max-model-len 131072 --slo first=20,gap=0.2"),
]


def headline(name, flags, quick, *held):
    return Experiment(name, f"quire bench headline {flags}", list(held), quick=f"quire bench headline {quick}")


def gains(case, pages="last pages only"):
    """What the papers give, beside the rows of one case. pages: why they are not used in full."""
    return [
        Held("R4 W2", "pages against static batches, highest rate, up to", 22, cell(f"{case} paged static, padded", "highest/s"), "a GPU's step costs the same at any of these batch sizes"),
        Held("R3", "against the maximum reserved, highest rate", (2, 4), cell(f"{case} paged iteration, max", "highest/s"), "the same reason"),
        Held("R5", "against known lengths, highest rate", (1.7, 2.7), cell(f"{case} paged iteration, oracle", "highest/s"), "the same reason"),
        Held("R5", "against known lengths, at once", 2.2, cell(f"{case} paged iteration, oracle", "at once"), "their buddy allocator also loses memory to rounding and fragmentation"),
        Held("R6", "% of reserved memory used, maximum reserved", 20.4, cell(f"{case} iteration, max", "live %"), "depends on the lengths"),
        Held("R6", "% used, paged", (96, 100), cell(f"{case} paged", "live %"), pages),
        Held("R21", "continuous batching against static, tokens/s", (1.3, 1.5), cell(f"{case} iteration, max static, padded", "tokens/s"), "here every padded and dead row costs"),
    ]


HEADLINE = [
    headline("headline-sharegpt-5", "--lengths sharegpt --shares 5 --draws 3", "--lengths sharegpt --shares 5 --rates 70,130", *gains("sharegpt 5")),
    headline("headline-sharegpt-10", "--lengths sharegpt --shares 10 --draws 3", "--quick --requests 20", *gains("sharegpt 10")),
    headline("headline-sharegpt-20", "--lengths sharegpt --shares 20 --draws 3", "--lengths sharegpt --shares 20 --rates 70,130 --requests 10"),
    headline("headline-alpaca", "--lengths alpaca --draws 8 --runs 3", "--lengths alpaca --shares 20 --rates 70,130 --requests 10"),
    headline("headline-1.1b", "--shape 1.1b --shrink 8", "--quick --shrink 8 --requests 20", *gains("sharegpt 10", "last pages only, of sequences an eighth as long")),
]

SPECULATION = [
    Experiment("speculation-greedy", "quire bench speculation -t 1 -n 257", [
        Held("R13", "speculation, really run: n-gram against none, tokens/s, greedy", 3, cell("all ngram", "of none"), "published for a draft model beside a 70B model on a GPU, by one source; here n-gram drafts on a CPU, where every drafted row costs time"),
    ], quick="quire bench speculation -t 1 -n 65"),
    Experiment("speculation-sampled", "quire bench speculation -t 1 -n 257 --temperature 0.7", [
        Held("R13", "the same at temperature 0.7", 3, cell("all ngram", "of none"), "the same reason; sampled text repeats itself less"),
    ], quick="quire bench speculation -t 1 -n 65 --temperature 0.7"),
    Experiment("speculation-line", DRAFT_MODEL % "", quick=DRAFT_MODEL.replace("257", "65") % ""),
    Experiment("speculation-tree", DRAFT_MODEL % ',\"tree_width\":3', quick=DRAFT_MODEL.replace("257", "65") % ',\"tree_width\":3'),
    Experiment("speculation-specbench", "quire bench speculation ../real/gemma-3-270m-q4_k_m.gguf --prompts ../shared/data/evals/spec_bench/question.jsonl --each 1 -n 32",
               quick="quire bench speculation --prompts ../shared/data/evals/spec_bench/question.jsonl --each 1 -n 16"),
]

SPEED = [
    Experiment("bench-kv-million", "quire bench kv --pages 1000000 --threads 1", each_processor=True),
    Experiment("bench-prefix", "quire bench prefix -t 1 --runs 3"),
    Experiment("bench-tiers", "quire bench tiers builtin -t 1 --lengths 512,1000 --runs 3"),
    Experiment("bench-stall-20", "quire bench stall builtin -t 1 --prompt 2000 --step-target-ms 20", [
        Held("R33", "longest gap of streams while a prompt of 2,000 comes, ms", "hundreds", cell("0", "longest"), "a stream waits for a whole step of the prompt; nothing was measured there"),
        Held("R33", "the same, when the prompt is held back, ms", "bounded by its own prefill, on other machines", cell("20", "longest"), "bounded here by a target step time, on the same machine"),
    ]),
    Experiment("bench-roofline", "quire bench roofline", each_processor=True),
    Experiment("bench-kernels", "quire bench kernels -t 1 --types q4_0,q4_k,q8_0,int8,bf16,f32 --rows 1,4,16,64,512", quick="quire bench kernels -t 1 --types q4_0 --rows 1,16", each_processor=True),
    Experiment("bench-sampler", "quire bench sampler -t 1 --runs 3", each_processor=True),
    Experiment("bench-engine", "quire bench engine --running 1,16,64,256", each_processor=True),
    Experiment("bench-start", "quire bench start ../real/gemma-3-270m-q4_k_m.gguf", quick="quire bench start ../shared/models/builtin-hf"),
    Experiment("bench-speed-shapes", "quire bench speed --shape all --batch 1,16 --runs 5", quick="quire bench speed --shape all --small --batch 1,16 --runs 1"),
    Experiment("bench-attention-windows", "quire bench attention --context 1024 --kv-dtype bf16 --runs 3",
               quick="quire bench attention --context 1024 --prompt 1024 --kv-dtype bf16 --runs 1"),
    Experiment("bench-text", "quire bench text --size 256 --runs 3"),
    Experiment("gap-bench", "tools/gap_bench.py --quire quire", quick="tools/gap_bench.py --quire quire --rounds 1 --seconds 1"),
    Experiment("fair-bench", "tools/fair_bench.py --quire quire", quick="tools/fair_bench.py --quire quire --chats 20 --phases 2"),
    Experiment("bench-json", "quire bench json --each 16 --rows 8,64", quick="quire bench json --each 1"),
    Experiment("bench-json-1.1b-jumps", "quire bench json --shape 1.1b --tokenizer ../shared/data/tokenizers/llama2-spm/tokenizer.model --each 1 --rows ''",
               quick="quire bench json --each 1"),
    Experiment("bench-json-1.1b", "quire bench json --shape 1.1b --tokenizer ../shared/data/tokenizers/llama2-spm/tokenizer.model --each 0 --rows 8,64 --steps 4",
               quick="quire bench json --each 0 --rows 8"),
    Experiment("bench-json-1.1b-256", "quire bench json --shape 1.1b --tokenizer ../shared/data/tokenizers/llama2-spm/tokenizer.model --each 0 --rows 256 --steps 3",
               quick="quire bench json --each 0 --rows 8"),
    Experiment("bench-grammar", "quire bench grammar --tokenizer ../shared/data/tokenizers/llama3/tokenizer.model --every 4 --schemas "
               + ",".join(f"../shared/data/json/maskbench/{name}.jsonl" for name in ("BFCL", "Github_easy_first400", "Glaiveai2K", "Handwritten", "JME", "MCPspec")),
               quick="quire bench grammar"),
]

EXPERIMENTS = BATCHING + MEMORY + REUSE + MODEL + SERVING + KERNELS + SIMULATED + HEADLINE + SPECULATION + SPEED

NOT_REPRODUCED = [
    ("F1 F10 F11 R2 R35 W9 L13 L14 B24 B31 B33", "no figure: a set-up, a list of files, formats or commits, or a description of code"),
    ("F2", "a set-up; its perplexity is F20. LongBench is named there, and no result of it"),
    ("F28", "vAttention over CUDA's virtual memory: quoted without a workload. What keys and values in one mapped piece gain over pages here is in `bench-latency` and `bench-attention`"),
    ("F29", "FlashAttention against attention that writes all scores: quoted without a workload, and Quire has no attention that writes all scores"),
    ("F32 F33 R24", "claims without a figure"),
    ("F14 F16 F17 F21 F22", "peak GPU memory, with contradictory figures: F17 finds no overhead where F16 has 0.2 GB. `bench-memory` counts what pages take over their tokens"),
    ("F30", "a share under a load without lengths"),
    ("F4 F5 F6 F13 F31 L9 R23 R26 W3", "what fits a GPU and what a fleet costs, computed from data sheets; `quire inspect` prints it for this machine"),
    ("L1 L2 L3 L6 L7 W6 B32 F9", "counts and formulas: worked examples 7 to 9 and 11, which tests hold"),
    ("W4", "an example without a result: 32 requests a read of the weights"),
    ("R14 R15", "TensorRT-LLM on NVIDIA's devices: single sources without lengths, and a program that does not run here"),
    ("R28", "the toy's numbers are lost; five tokens in pages of 2 are worked example 19, which a test counts"),
    ("R16", "recomputing against swapping over PCIe; in one memory swapping is a copy, and always the faster"),
    ("R29 R30", "worked examples 20, 21 and 22: tests of the index and of admission count them; no command prints them"),
    ("R31 B6 B7 B18 B30", "pages that sequences take as they grow: worked examples 11 and 28 to 30, which tests count"),
    ("B3 B4 B11 B12 B13 B14 B15 B25", "static and continuous batches of one list of prompts: worked examples 25 to 27, which tests count. `ablation-batching` runs both servers"),
    ("B5 B8 B16 B17 B20 B21 B22 B28", "memory and speed of an engine that runs a pass for each sequence, or gathers pages in Python; its columns count different things (B17, B20)"),
    ("B19", "the pool of a GPU whose memory size is not given; `quire inspect` prints this machine's"),
    ("B26", "slot reuse counted by hand after ten steps; `demo-schedule` shows such states of the real planner"),
    ("B29", "addresses of an operating system's pages"),
]

# The published figures that a page of docs/lab shows: experiment, ids, and which of its rows with these ids.
ON_PAGES = {
    "experiments": [
        ("ablation-batching", "R21", 0), ("ablation-batching", "R6", 0), ("ablation-batching", "W1 F26 R3", 0), ("bench-pages", "W1 R3 R6", 0),
        ("bench-pages", "R18 L4", 0), ("bench-latency", "F24", 0), ("demo-snapshot", "B23", 0), ("bench-sharing", "R17", 0),
        ("bench-workload", "R12", 0), ("bench-ablation", "R19", 1), ("speculation-greedy", "R13", 0),
    ],
    "programs": [("bench-programs", "R7", 0), ("bench-programs", "R8", 0), ("bench-programs", "R9", 0)],
    "headline": [
        ("headline-sharegpt-5", "R4 W2", 0), ("headline-sharegpt-5", "R3", 0), ("headline-sharegpt-5", "R5", 0), ("headline-sharegpt-5", "R6", 1),
        ("headline-sharegpt-5", "R21", 0), ("headline-1.1b", "R4 W2", 0), ("headline-1.1b", "R3", 0), ("headline-1.1b", "R5", 0), ("headline-1.1b", "R5", 1),
        ("headline-1.1b", "R6", 0), ("headline-1.1b", "R6", 1), ("headline-1.1b", "R21", 0),
    ],
    "serving": [
        ("serving-sharegpt", "R3 F27", 0), ("serving-sharegpt", "R4", 0), ("serving-sharegpt", "R5", 0),
        ("serving-sharegpt", "R6", 0), ("serving-sharegpt", "R6", 1), ("serving-alpaca", "R3", 0), ("serving-alpaca", "R4", 0), ("serving-alpaca", "R5", 0),
        ("serving-opt-66b", "R1 R3", 0), ("serving-opt-175b", "R1 R3", 0),
    ],
}

#include "file/not_a_model.h"

#include <dirent.h>
#include <stdio.h>

#include "file/show.h"

#define AS_GGUF "download the model as safetensors or GGUF"

/* ---- by content ---- */

static const struct {
    size_t at;
    const char *bytes;
    size_t n;
    foreign is;
} contents[] = {
#define MAGIC(at, bytes) at, bytes, sizeof bytes - 1
    {MAGIC(0, "version https://git-lfs.github.com/spec/"),
     {"a pointer of Git LFS, not the file itself",
      "fetch it with `git lfs pull`, or the model with `quire pull ORG/NAME`"}},
    {MAGIC(0, "lmgg"),
     {"a GGML file, a format that llama.cpp dropped for GGUF in 2023", "download the model as GGUF"}},
    {MAGIC(0, "fmgg"),
     {"a GGMF file, a format that llama.cpp dropped for GGUF in 2023", "download the model as GGUF"}},
    {MAGIC(0, "tjgg"),
     {"a GGJT file, a format that llama.cpp dropped for GGUF in 2023", "download the model as GGUF"}},
    {MAGIC(0, "algg"),
     {"a GGLA file, a LoRA adapter of an old llama.cpp", "download the whole model as GGUF"}},
    {MAGIC(0, "\x89HDF\r\n\x1a\n"), {"an HDF5 file, as Keras and TensorFlow write weights", AS_GGUF}},
    {MAGIC(0, "\x80\x02"), {"a PyTorch pickle, a program that Quire never runs", AS_GGUF}},
    {MAGIC(0, "\x80\x03"), {"a PyTorch pickle, a program that Quire never runs", AS_GGUF}},
    {MAGIC(0, "\x80\x04"), {"a PyTorch pickle, a program that Quire never runs", AS_GGUF}},
    {MAGIC(4, "TFL3"), {"a TensorFlow Lite model", AS_GGUF}},
    {MAGIC(0, "\x1f\x8b"), {"a gzip archive", "unpack it and name what it holds"}},
    {MAGIC(0, "\xfd"
              "7zXZ"),
     {"an xz archive", "unpack it and name what it holds"}},
    {MAGIC(0, "\x28\xb5\x2f\xfd"), {"a Zstandard archive", "unpack it and name what it holds"}},
    {MAGIC(257, "ustar"), {"a tar archive", "unpack it and name what it holds"}},
    {MAGIC(0, "\x7f"
              "ELF"),
     {"a program", "name a GGUF file or the directory of a Hugging Face model"}},
    {MAGIC(0, "MZ"), {"a program, as a llamafile is", "download the model as GGUF"}},
    {MAGIC(0, "<!DOCTYPE"),
     {"a web page that was downloaded instead of the file",
      "download it again, from the hub's download link"}},
    {MAGIC(0, "<!doctype"),
     {"a web page that was downloaded instead of the file",
      "download it again, from the hub's download link"}},
    {MAGIC(0, "<html"),
     {"a web page that was downloaded instead of the file",
      "download it again, from the hub's download link"}},
#undef MAGIC
};

/* Whether content begins like a safetensors file: the length of a JSON object, and its
 * beginning. */
static bool is_safetensors(str content) {
    return content.n > 9 && content.p[8] == '{' && content.p[5] == 0 && content.p[6] == 0 &&
           content.p[7] == 0;
}

foreign foreign_of_content(str content) {
    for (size_t i = 0; i < sizeof contents / sizeof *contents; i++) {
        size_t at = contents[i].at, n = contents[i].n;
        if (content.n >= at + n && memcmp(content.p + at, contents[i].bytes, n) == 0) {
            return contents[i].is;
        }
    }
    if (content.n == 0) {
        return (foreign){"an empty file", "download it again"};
    }
    if (str_begins(content, "PK\x03\x04")) {
        str head = {content.p, content.n < 200 ? content.n : 200};
        return str_contains(head, str_of("data.pkl"))
                   ? (foreign){"a PyTorch pickle, a program that Quire never runs", AS_GGUF}
                   : (foreign){"a zip archive", "unpack it and name what it holds"};
    }
    return is_safetensors(content) ? (foreign){"a safetensors file without config.json beside it",
                                               "download the model's whole directory and name that"}
                                   : (foreign){NULL, NULL};
}

/* ---- by name ---- */

/* A pattern for names: begin and end of a path's last component; equal: the whole
 * name. */
typedef struct named {
    const char *begins, *ends;
    foreign is;
} named;

/* Sorted from the most specific to the least. */
static const named names[] = {
    {"adapter_",
     "config.json",
     {"a LoRA adapter (PEFT), not a model",
      "serve its base model with the adapter beside it: --lora-modules NAME=PATH"}},
    {"adapter_model",
     "",
     {"a LoRA adapter (PEFT), not a model",
      "serve its base model with the adapter beside it: --lora-modules NAME=PATH"}},
    {"model_index.json",
     "",
     {"a diffusers pipeline, which makes images", "Quire runs text models: download one of those"}},
    {"diffusion_pytorch_model",
     "",
     {"a part of a diffusers pipeline, which makes images", "Quire runs text models: download one of those"}},
    {"", ".gguf", {"GGUF", "name the file itself"}},
    {"consolidated",
     ".safetensors",
     {"weights in Mistral's own layout",
      "download the model's files for transformers (config.json, model*.safetensors), or GGUF"}},
    {"", ".npz", {"NumPy arrays, as MLX wrote weights", AS_GGUF}},
    {"rank", ".safetensors", {"a checkpoint of TensorRT-LLM", AS_GGUF}},
    {"output", ".safetensors", {"a checkpoint of ExLlamaV2", AS_GGUF}},
    {"mlc-chat-config.json", "", {"a model compiled by MLC-LLM", AS_GGUF}},
    {"params_shard_", ".bin", {"weights of MLC-LLM", AS_GGUF}},
    {"shared_vocabulary.", "", {"a CTranslate2 model", AS_GGUF}},
    {"vocabulary.json", "", {"a CTranslate2 model", AS_GGUF}},
    {"vocabulary.txt", "", {"a CTranslate2 model", AS_GGUF}},
    {"consolidated",
     ".pth",
     {"Meta's original PyTorch pickles, programs that Quire never runs",
      "download the repository whose name ends in -hf, or GGUF"}},
    {"pytorch_model", ".bin", {"PyTorch pickles, programs that Quire never runs", AS_GGUF}},
    {"", ".pth", {"PyTorch pickles, programs that Quire never runs", AS_GGUF}},
    {"", ".pt", {"PyTorch pickles, programs that Quire never runs", AS_GGUF}},
    {"", ".ckpt", {"a PyTorch or TensorFlow checkpoint", AS_GGUF}},
    {"", ".nemo", {"a NeMo archive", AS_GGUF}},
    {"", ".onnx", {"an ONNX model", AS_GGUF}},
    {"", ".onnx_data", {"an ONNX model", AS_GGUF}},
    {"openvino_model", ".xml", {"an OpenVINO model", AS_GGUF}},
    {"", ".mlmodel", {"a Core ML model", AS_GGUF}},
    {"", ".mlpackage", {"a Core ML model", AS_GGUF}},
    {"", ".tflite", {"a TensorFlow Lite model", AS_GGUF}},
    {"", ".task", {"a MediaPipe model", AS_GGUF}},
    {"", ".litertlm", {"a LiteRT model", AS_GGUF}},
    {"", ".engine", {"a TensorRT engine", AS_GGUF}},
    {"", ".plan", {"a TensorRT engine", AS_GGUF}},
    {"", ".pte", {"an ExecuTorch program", AS_GGUF}},
    {"", ".mnn", {"an MNN model", AS_GGUF}},
    {"", ".pdparams", {"a PaddlePaddle checkpoint", AS_GGUF}},
    {"", ".llamafile", {"a llamafile, which is a program", "download the model as GGUF"}},
    {"tf_model", ".h5", {"a TensorFlow checkpoint", AS_GGUF}},
    {"", ".h5", {"a Keras model", AS_GGUF}},
    {"saved_model.pb", "", {"a TensorFlow model", AS_GGUF}},
    {"flax_model", ".msgpack", {"a Flax checkpoint", AS_GGUF}},
    {"", ".bin", {"weights of an unknown kind (.bin)", AS_GGUF}},
};

#define WHOLE "download the model's whole directory, as `quire pull ORG/NAME` does"

/* Files that Quire reads only together with the other parts of a model. */
static const named parts[] = {
    {"model", ".safetensors", {"weights", WHOLE}},  {"tokenizer", ".model", {"a tokenizer", WHOLE}},
    {"spiece", ".model", {"a tokenizer", WHOLE}},   {"sentencepiece", ".model", {"a tokenizer", WHOLE}},
    {"tokenizer", ".json", {"a tokenizer", WHOLE}}, {"tekken.json", "", {"a tokenizer", WHOLE}},
    {"vocab.", "", {"a tokenizer", WHOLE}},         {"merges.txt", "", {"a tokenizer", WHOLE}},
    {"", ".tiktoken", {"a tokenizer", WHOLE}},
};

enum { N_NAMES = sizeof names / sizeof *names, N_PARTS = sizeof parts / sizeof *parts };

static foreign find_named(const named *table, size_t n, str path) {
    size_t slash = path.n;
    while (slash > 0 && path.p[slash - 1] != '/') {
        slash--;
    }
    str name = {path.p + slash, path.n - slash};
    for (size_t i = 0; i < n; i++) {
        if (str_begins(name, table[i].begins) && str_ends(name, table[i].ends)) {
            return table[i].is;
        }
    }
    return (foreign){NULL, NULL};
}

foreign foreign_of_name(str path) {
    return find_named(names, N_NAMES, path);
}

static foreign stronger_in(const named *table, size_t n, foreign a, foreign b) {
    for (size_t i = 0; i < n; i++) {
        bool is_a = a.what != NULL && strcmp(table[i].is.what, a.what) == 0;
        if (is_a || (b.what != NULL && strcmp(table[i].is.what, b.what) == 0)) {
            return is_a ? a : b;
        }
    }
    return a;
}

foreign foreign_stronger(foreign a, foreign b) {
    return stronger_in(names, N_NAMES, a, b);
}

static foreign strongest_in_directory(const named *table, size_t n, const char *dir) {
    foreign found = {NULL, NULL};
    struct dirent *entry;
    DIR *d = opendir(dir);
    while (d != NULL && (entry = readdir(d)) != NULL) {
        found = stronger_in(table, n, found, find_named(table, n, str_of(entry->d_name)));
    }
    if (d != NULL) {
        (void)closedir(d);
    }
    return found;
}

foreign foreign_of_directory(const char *dir) {
    return strongest_in_directory(names, N_NAMES, dir);
}

foreign foreign_part_of_directory(const char *dir) {
    return strongest_in_directory(parts, N_PARTS, dir);
}

/* ---- GGUF files of other kinds ---- */

foreign foreign_of_gguf(str type, str architecture) {
    static const struct {
        const char *type, *architecture;
        foreign is;
    } kinds[] = {
        {"adapter",
         "",
         {"a LoRA adapter, not a model",
          "serve its base model with the adapter beside it: --lora-modules NAME=PATH"}},
        {"imatrix",
         "imatrix",
         {"an importance matrix, which belongs to a model", "name the model's GGUF file"}},
        {"mmproj",
         "clip",
         {"a projector for images or sound, which belongs to a model", "name the model's GGUF file"}},
        {"clip-vision",
         "",
         {"a projector for images, which belongs to a model", "name the model's GGUF file"}},
        {"", "controlvector", {"a control vector, which belongs to a model", "name the model's GGUF file"}},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if ((kinds[i].type[0] != 0 && str_is(type, kinds[i].type)) ||
            (kinds[i].architecture[0] != 0 && str_is(architecture, kinds[i].architecture))) {
            return kinds[i].is;
        }
    }
    return (foreign){NULL, NULL};
}

/* ---- quantised weights of other programs ---- */

/* Tensors that reveal a form of quantisation if config.json does not. `with`: suffix of
 * another tensor with the same stem that must exist too; "": none. */
static const struct {
    const char *ends, *with, *form;
} forms[] = {
    {".scales", ".biases", "MLX"}, {".q_weight", "", "ExLlamaV2"}, {".trellis", "", "ExLlamaV3"},
    {".W_q", "", "HQQ"},           {".codebooks", "", "AQLM"},
};

/* Methods of quantisation that src/model reads (quant_method.h). */
static const char *const methods[] = {
    "compressed-tensors", "compressed_tensors", "gptq",  "awq",        "fp8",   "modelopt",
    "modelopt_fp4",       "bitsandbytes",       "mxfp4", "auto-round", "quark", "fbgemm_fp8"};

static bool is_read(str method) {
    bool is = false;
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        is = is || str_is(method, methods[i]);
    }
    return is;
}

static bool has_tensor(const tensor_dir *d, str stem, const char *end) {
    char name[256];
    int n = snprintf(name, sizeof name, "%.*s%s", (int)(stem.n < 200 ? stem.n : 200), stem.p, end);
    str wanted = {name, (size_t)n};
    return stem.n <= 200 && (tensor_dir_find(d, wanted) >= 0 || tensor_dir_why_unread(d, wanted) != NULL);
}

static const char *form_of_tensor(const tensor_dir *d, str name) {
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        str stem = {name.p, name.n - (str_ends(name, forms[i].ends) ? strlen(forms[i].ends) : 0)};
        if (stem.n < name.n && (forms[i].with[0] == 0 || has_tensor(d, stem, forms[i].with))) {
            return forms[i].form;
        }
    }
    return NULL;
}

static const char *form_of_tensors(const tensor_dir *d) {
    const char *form = NULL;
    for (int32_t i = 0; i < d->n && form == NULL; i++) {
        form = form_of_tensor(d, str_of(d->views[i].name));
    }
    for (size_t i = 0; i < d->n_unread && form == NULL; i++) {
        form = form_of_tensor(d, str_of(d->names.p + d->unread[i].name_at));
    }
    return form;
}

/* Finds the object in config.json that describes the quantisation, at the root or in the
 * text part of a composite model; *form is its name. */
static const json_value *find_quantisation(const json_value *config, str *form) {
    const json_value *const places[] = {config, json_get(config, "text_config")};
    int64_t bits;
    for (size_t i = 0; i < 2; i++) {
        const json_value *mlx = json_get(places[i], "quantization"),
                         *q = json_get(places[i], "quantization_config");
        str method = json_get_str(q, "quant_method");
        if (json_whole(json_get(mlx, "bits"), &bits)) {
            *form = str_of("MLX");
            return mlx;
        }
        if (method.n > 0 && !is_read(method)) {
            *form = method;
            return q;
        }
    }
    return NULL;
}

quire_err foreign_weights_check(const json_value *config, const tensor_dir *tensors, const char *where,
                                const char *base, quire_error *err) {
    str form = {0};
    char width[32] = "";
    int64_t bits;
    const json_value *said = find_quantisation(config, &form);
    const char *seen = said == NULL && tensors != NULL ? form_of_tensors(tensors) : NULL,
               *by = "the names of its tensors";
    if (said == NULL && seen == NULL) {
        return QUIRE_OK;
    }
    form = said != NULL ? form : str_of(seen);
    if (json_whole(json_get(said, "bits"), &bits) && bits > 0 && bits <= 32) {
        (void)snprintf(width, sizeof width, " to %d bits", (int)bits);
    }
    bool is_mlx = str_is(form, "MLX");
    if (said != NULL) {
        by = is_mlx ? "quantization in config.json" : "quantization_config.quant_method in config.json";
    }
    return err_set(err, QUIRE_UNSUPPORTED, -1,
                   "%s: %s%s%s (by %s); Quire reads safetensors quantised with compressed-tensors, GPTQ, "
                   "AWQ, AutoRound, FP8, ModelOpt, Quark, bitsandbytes or MXFP4: download the model that "
                   "this was made from%s%s, or a GGUF of it",
                   where, is_mlx ? "an MLX checkpoint, quantised" : "a checkpoint quantised with ",
                   is_mlx ? "" : show_name(form).text, width, by, base[0] != 0 ? ", " : "", base);
}

/* Whether text is "ORG/NAME": two words of letters, digits, '-', '_' and '.', neither of
 * which begins with a dot. */
static bool is_repository(const char *text) {
    const char *slash = strchr(text, '/');
    size_t n = strlen(text);
    return slash != NULL && slash != text && slash[1] != 0 && text[0] != '.' && slash[1] != '.' &&
           strchr(slash + 1, '/') == NULL &&
           strspn(text, "/-_.0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") == n;
}

/* Writes the model that a YAML value names, which may be quoted or a list's item. Writes
 * nothing if it is no name. */
static void not_a_model_read_base(str value, char out[FOREIGN_BASE_BYTES]) {
    char text[FOREIGN_BASE_BYTES];
    while (value.n > 0 && strchr(" -\"'\t[", value.p[0]) != NULL) {
        value = (str){value.p + 1, value.n - 1};
    }
    size_t n = 0;
    while (n < value.n && strchr(" \"'\t\r],", value.p[n]) == NULL) {
        n++;
    }
    if (n < sizeof text) {
        (void)snprintf(text, sizeof text, "%.*s", (int)n, value.p);
        (void)snprintf(out, FOREIGN_BASE_BYTES, "%s", is_repository(text) ? text : "");
    }
}

void foreign_base_of_card(str readme, char out[FOREIGN_BASE_BYTES]) {
    const str key = str_of("base_model:");
    bool is_item = false;
    size_t at = 0;
    out[0] = 0;
    for (int i = 0; i < 1000 && at < readme.n && out[0] == 0; i++) {
        const char *end = memchr(readme.p + at, '\n', readme.n - at);
        str line = {readme.p + at, end != NULL ? (size_t)(end - readme.p) - at : readme.n - at};
        at += line.n + 1;
        if (str_begins(line, "---") != (i == 0)) {
            return; /* there is no front matter, or it ends here */
        }
        if (is_item || str_begins(line, key.p)) {
            not_a_model_read_base(is_item ? line : (str){line.p + key.n, line.n - key.n}, out);
            is_item = !is_item; /* the first item of a list is on the next line */
        }
    }
}

#include "file/not_a_model.h"

#include <dirent.h>

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
     {"a pointer of Git LFS, not the file itself", "fetch it with `git lfs pull`, or the model with `quire pull ORG/NAME`"}},
    {MAGIC(0, "lmgg"), {"a GGML file, a format before GGUF that llama.cpp gave up in 2023", "download the model as GGUF"}},
    {MAGIC(0, "fmgg"), {"a GGMF file, a format before GGUF that llama.cpp gave up in 2023", "download the model as GGUF"}},
    {MAGIC(0, "tjgg"), {"a GGJT file, a format before GGUF that llama.cpp gave up in 2023", "download the model as GGUF"}},
    {MAGIC(0, "algg"), {"a GGLA file, a LoRA adapter of an old llama.cpp", "download the whole model as GGUF"}},
    {MAGIC(0, "\x89HDF\r\n\x1a\n"), {"an HDF5 file, as Keras and TensorFlow write weights", AS_GGUF}},
    {MAGIC(0, "\x80\x02"), {"a PyTorch pickle, which is a program and never run", AS_GGUF}},
    {MAGIC(0, "\x80\x03"), {"a PyTorch pickle, which is a program and never run", AS_GGUF}},
    {MAGIC(0, "\x80\x04"), {"a PyTorch pickle, which is a program and never run", AS_GGUF}},
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
     {"a web page: its download gave a page in place of the file", "download it again, from the hub's link for files"}},
    {MAGIC(0, "<!doctype"),
     {"a web page: its download gave a page in place of the file", "download it again, from the hub's link for files"}},
    {MAGIC(0, "<html"), {"a web page: its download gave a page in place of the file", "download it again, from the hub's link for files"}},
#undef MAGIC
};

/* True for a safetensors file: the length of a JSON object, and its beginning. */
static bool is_safetensors(str content) {
    return content.n > 9 && content.p[8] == '{' && content.p[5] == 0 && content.p[6] == 0 && content.p[7] == 0;
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
        return str_contains(head, str_of("data.pkl")) ? (foreign){"a PyTorch pickle, which is a program and never run", AS_GGUF}
                                                      : (foreign){"a zip archive", "unpack it and name what it holds"};
    }
    return is_safetensors(content)
               ? (foreign){"a safetensors file without config.json beside it", "download the model's whole directory and name that"}
               : (foreign){NULL, NULL};
}

/* ---- by name ---- */

/* In the order of what says most. `begins` and `ends`: of a path's last name; a whole name is both. */
static const struct {
    const char *begins, *ends;
    foreign is;
} names[] = {
    {"adapter_",
     "config.json",
     {"a LoRA adapter (PEFT), not a model", "merge it into its base model and name that, or download the base model"}},
    {"adapter_model", "", {"a LoRA adapter (PEFT), not a model", "merge it into its base model and name that, or download the base model"}},
    {"model_index.json", "", {"a diffusers pipeline, which makes images", "Quire runs models of text: download one of those"}},
    {"", ".gguf", {"GGUF", "name the file itself"}},
    {"consolidated",
     ".safetensors",
     {"weights in Mistral's own layout", "download the model's files for transformers (config.json, model*.safetensors), or GGUF"}},
    {"", ".npz", {"NumPy arrays, as MLX wrote weights", AS_GGUF}},
    {"consolidated",
     ".pth",
     {"Meta's original PyTorch pickles, which are programs and never run", "download the repository whose name ends in -hf, or GGUF"}},
    {"pytorch_model", ".bin", {"PyTorch pickles, which are programs and never run", AS_GGUF}},
    {"", ".pth", {"PyTorch pickles, which are programs and never run", AS_GGUF}},
    {"", ".pt", {"PyTorch pickles, which are programs and never run", AS_GGUF}},
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
    {"tf_model", ".h5", {"a TensorFlow checkpoint", AS_GGUF}},
    {"", ".h5", {"a Keras model", AS_GGUF}},
    {"saved_model.pb", "", {"a TensorFlow model", AS_GGUF}},
    {"flax_model", ".msgpack", {"a Flax checkpoint", AS_GGUF}},
    {"", ".bin", {"weights of an unknown kind (.bin)", AS_GGUF}},
};

enum { N_NAMES = sizeof names / sizeof *names };

foreign foreign_of_name(str path) {
    size_t slash = path.n;
    while (slash > 0 && path.p[slash - 1] != '/') {
        slash--;
    }
    str name = {path.p + slash, path.n - slash};
    for (size_t i = 0; i < N_NAMES; i++) {
        if (str_begins(name, names[i].begins) && str_ends(name, names[i].ends)) {
            return names[i].is;
        }
    }
    return (foreign){NULL, NULL};
}

static size_t rank_of(foreign f) {
    size_t i = 0;
    while (i < N_NAMES && (f.what == NULL || strcmp(names[i].is.what, f.what) != 0)) {
        i++;
    }
    return i;
}

foreign foreign_stronger(foreign a, foreign b) {
    return rank_of(b) < rank_of(a) ? b : a;
}

foreign foreign_of_directory(const char *dir) {
    foreign found = {NULL, NULL};
    struct dirent *entry;
    DIR *d = opendir(dir);
    while (d != NULL && (entry = readdir(d)) != NULL) {
        found = foreign_stronger(found, foreign_of_name(str_of(entry->d_name)));
    }
    if (d != NULL) {
        (void)closedir(d);
    }
    return found;
}

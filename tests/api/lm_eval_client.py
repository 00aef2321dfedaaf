"""lm-eval's loglikelihood and generation tasks, unmodified, against a tiny model (argument 1); files go to a folder (2)."""
import importlib.metadata
import json
import pathlib
import sys

import lm_eval
import lm_eval.tasks

QUESTIONS = [{"question": f"{a} plus {b} is", "choices": [str(a + b), "zero", "a very long wrong answer"], "answer": 0}
             for a, b in ((1, 2), (2, 3), (4, 5))]
TASK = """
task: zinc_{kind}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {file}}}}}
test_split: test
doc_to_text: "{{{{question}}}}"
doc_to_target: {target}
output_type: {kind}
{more}
"""

folder = pathlib.Path(sys.argv[2]) / "lm-eval-tasks"
folder.mkdir(parents=True, exist_ok=True)
questions = folder / "questions.jsonl"
questions.write_text("\n".join(json.dumps(question) for question in QUESTIONS))
(folder / "choice.yaml").write_text(TASK.format(kind="multiple_choice", file=questions, target="answer", more="""
doc_to_choice: choices
metric_list: [{metric: acc}]"""))
(folder / "generate.yaml").write_text(TASK.format(kind="generate_until", file=questions, target='"{{choices[0]}}"', more="""
generation_kwargs: {until: ["\\n"], max_gen_toks: 8}
metric_list: [{metric: exact_match}]"""))

results = lm_eval.simple_evaluate(
    model="local-completions",
    model_args={"model": "tiny", "base_url": sys.argv[1] + "/v1/completions", "tokenizer_backend": "remote",
                "num_concurrent": 2, "max_retries": 1, "batch_size": 3},
    tasks=["zinc_multiple_choice", "zinc_generate_until"],
    task_manager=lm_eval.tasks.TaskManager(include_path=str(folder), include_defaults=False))
samples = results["samples"]["zinc_multiple_choice"]
assert len(samples) == len(QUESTIONS), samples
for sample in samples:
    scores = [float(response[0][0]) for response in sample["resps"]]
    assert len(scores) == 3 and all(score < 0 for score in scores), scores
    assert scores[2] < scores[0], "a longer random text is less likely"
assert len(results["samples"]["zinc_generate_until"]) == len(QUESTIONS)
print(f"lm-eval {importlib.metadata.version('lm_eval')}: multiple_choice and generate_until")

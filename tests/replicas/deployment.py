#!/usr/bin/env python3
"""Validates Dockerfile, compose files and Kubernetes manifests of deploy/, and that they agree with each other.

    deployment.py ZINC

Needs the packages of requirements.txt; tests/replicas/deployment installs them.
"""
import copy
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
ZINC = sys.argv[1]
HAPROXY = (DEPLOY / "haproxy.cfg").read_text()


def output_of(*command, **options):
    end = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=60, **options)
    if end.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}: {end.returncode}\n{end.stdout}\n{end.stderr}")
    return end.stdout + end.stderr


def manifests(name):
    return list(yaml.safe_load_all((DEPLOY / "kubernetes" / name).read_text()))


def of_kind(documents, kind):
    return next(document for document in documents if document["kind"] == kind)


def merged(base, patch):
    """Strategic merge of a patch: objects by member, containers by name."""
    if isinstance(base, dict) and isinstance(patch, dict):
        return {key: merged(base[key], patch[key]) if key in base and key in patch else copy.deepcopy(patch.get(key, base.get(key)))
                for key in base | patch}
    if isinstance(base, list) and isinstance(patch, list) and all(isinstance(item, dict) and "name" in item for item in patch):
        by_name = {item["name"]: item for item in patch}
        assert set(by_name) <= {item["name"] for item in base}, "the patch names a container that is not there"
        return [merged(item, by_name.get(item["name"], {})) for item in base]
    return copy.deepcopy(patch)


def seconds(options, name):
    return int(next(option.split("=")[1] for option in options if option.startswith(f"--{name}=")))


class Deployment(unittest.TestCase):
    def setUp(self):
        self.servers = re.findall(r'(?m)^  server (\S+) "\$\{(\w+)-[^}]+\}" id (\d+)$', HAPROXY)
        self.names = [name for name, _, _ in self.servers]
        self.variables = {variable for _, variable, _ in self.servers}
        self.assertGreaterEqual(len(self.servers), 2)
        self.compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
        self.replicas = of_kind(manifests("zinc.yaml"), "StatefulSet")
        self.pod = self.replicas["spec"]["template"]["spec"]

    def check_serve(self, command, environment, grace_s):
        """`zinc serve` takes the options, and the time to stop is longer than its drain."""
        self.assertEqual(command[0], "serve")
        config = output_of(ZINC, *command[:-1], "model.gguf", "--print-config", env={**os.environ, **environment})
        self.assertIn(f"replica = {environment['ZINC_REPLICA']}", config.replace('"', ""))
        delay_s, drain_s = seconds(command, "drain-delay-seconds"), seconds(command, "drain-seconds")
        inter_s, fall = (int(value) for value in re.search(r"check inter (\d+)s fall (\d+)", HAPROXY).groups())
        self.assertGreater(delay_s, inter_s * fall + 1, "HAProxy must notice within the delay")
        self.assertGreater(grace_s, delay_s + drain_s)

    def test_servers_have_different_places_on_the_ring(self):
        self.assertEqual(len({place for _, _, place in self.servers}), len(self.servers))

    def test_dockerfile(self):
        output_of("hadolint", DEPLOY / "Dockerfile")
        text = (DEPLOY / "Dockerfile").read_text()
        version = re.search(r"project\(zinc VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
        self.assertEqual(re.search(r"(?m)^ARG ZINC_IMAGE=zinc:(.*)$", text)[1], version)
        package = re.search(r"nvidia-cuda-nvrtc==(\d+)\.(\d+)", (ROOT / "tools/install_nvrtc.sh").read_text())
        self.assertIn(f"/libnvrtc.so.{package[1]} ", text)
        self.assertIn(f"/libnvrtc-builtins.so.{package[1]}.{package[2]} ", text)

    def test_compose_files(self):
        files = [DEPLOY / "compose.yaml", DEPLOY / "compose.gpu.yaml"]
        output_of("check-jsonschema", "--builtin-schema", "vendor.compose-spec", *files)
        for name in self.names:
            service = self.compose[name]
            self.assertEqual(service["environment"]["ZINC_REPLICA"], name)
            command = [re.sub(r"\$\{\w+:-(.*)\}", r"\1", word) for word in service["command"]]
            self.check_serve(command, {"ZINC_REPLICA": name, "ZINC_API_KEY": "k"}, int(service["stop_grace_period"].removesuffix("s")))
        self.assertLessEqual(self.variables, set(self.compose["haproxy"]["environment"]))
        gpu = yaml.safe_load(files[1].read_text())["services"]
        self.assertEqual(set(gpu), set(self.names))

    def test_kubernetes_manifests(self):
        for name in ["zinc.yaml", "haproxy.yaml"]:
            output_of("kubernetes-validate", "--strict", DEPLOY / "kubernetes" / name)
        self.assertEqual([f"{self.replicas['metadata']['name']}-{i}" for i in range(self.replicas["spec"]["replicas"])], self.names)
        container = self.pod["containers"][0]
        self.check_serve(container["args"], {"ZINC_REPLICA": "zinc-0", "ZINC_API_KEY": "k"}, self.pod["terminationGracePeriodSeconds"])
        balancer = of_kind(manifests("haproxy.yaml"), "Deployment")["spec"]["template"]["spec"]
        environment = {entry["name"]: entry.get("value", "") for entry in balancer["containers"][0]["env"]}
        self.assertLessEqual(self.variables, set(environment))
        for name, variable, _ in self.servers:
            self.assertTrue(environment[variable].startswith(f"{name}.{self.replicas['spec']['serviceName']}."), environment[variable])
        self.assertGreaterEqual(balancer["terminationGracePeriodSeconds"], self.pod["terminationGracePeriodSeconds"])

    def test_kubernetes_manifest_with_the_gpu_patch(self):
        with_gpu = merged(self.replicas, *manifests("gpu.yaml"))
        container = with_gpu["spec"]["template"]["spec"]["containers"][0]
        self.assertEqual(container["resources"]["limits"]["nvidia.com/gpu"], "1")
        self.assertEqual(container["args"], self.pod["containers"][0]["args"])
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            yaml.safe_dump(with_gpu, file)
            file.flush()
            output_of("kubernetes-validate", "--strict", file.name)

    def test_broken_files_are_found(self):
        """The validators are not switched off: a wrong member of each format is an error."""
        for validator, text in [(["kubernetes-validate", "--strict"], (DEPLOY / "kubernetes/zinc.yaml").read_text().replace("httpGet", "httpGot")),
                                (["check-jsonschema", "--builtin-schema", "vendor.compose-spec"], "services: {a: {imago: b}}"),
                                (["hadolint"], "FROM a\nCOPY b\n")]:
            with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
                file.write(text)
                file.flush()
                with self.assertRaises(AssertionError):
                    output_of(*validator, file.name)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)

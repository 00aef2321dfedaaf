#!/usr/bin/env python3
"""Tests two `zinc serve` behind HAProxy as docs/replicas.md describes them: affinity, a replica that is killed or drained.

    replicas.py ZINC

Needs the program haproxy. Everything is on the loopback.
"""
import concurrent.futures
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import uuid

from fleet import CONFIG, HAPROXY, Fleet, free_port, wait_until

ZINC = sys.argv[1]
N_CONVERSATIONS = 40
N_AT_ONCE = 8
DRAIN_DELAY_S = 4  # longer than HAProxy needs to notice: two checks, a second apart
OPTIONS = ["--parallel", "16", "--queue", "8", "-c", "4096", "--drain-delay-seconds", str(DRAIN_DELAY_S)]
SLOW = ["--device", "reference"]  # about 1,000 tokens per second: a stream is still running when its replica is killed
WORDS = "river stone lamp winter garden copper letter mountain silver window paper harbour candle bridge orchard".split()
PAUSE_S = 0.01  # between the requests of a client while a replica drains


def text_of(seed, n_words=60):
    words = random.Random(seed)
    return " ".join(words.choice(WORDS) for _ in range(n_words))


def at_once(function, items, n_threads=N_AT_ONCE):
    with concurrent.futures.ThreadPoolExecutor(n_threads) as threads:
        return list(threads.map(function, items))


def stream_of(n_tokens):
    return {"max_tokens": n_tokens, "ignore_eos": True, "stream": True}


def unrelated_key(*_):
    return {"X-Session-ID": str(uuid.uuid4())}


class FleetTest(unittest.TestCase):
    options = OPTIONS

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="zinc-replicas-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.fleet = cls.enterClassContext(Fleet(ZINC, cls.folder, cls.options))

    def two_turns(self, name, headers_of_turn=lambda turn: None, system=None, n_words=60):
        """Replicas of both turns, and whether the second found the whole prompt of the first one in the cache."""
        messages = [{"role": "system", "content": system}] if system else []
        messages.append({"role": "user", "content": text_of(name, n_words)})
        first = self.fleet.chat(messages, headers_of_turn(1), max_tokens=8)
        self.assertTrue(first.is_complete, first)
        answer = first.json["choices"][0]["message"]
        messages += [{"role": "assistant", "content": answer["content"] or ""}, {"role": "user", "content": "and then?"}]
        second = self.fleet.chat(messages, headers_of_turn(2), max_tokens=8)
        self.assertTrue(second.is_complete, second)
        n_cached = second.json["usage"]["prompt_tokens_details"]["cached_tokens"]
        return first.replica, second.replica, n_cached > 0.9 * first.json["usage"]["prompt_tokens"]

    def check_affinity(self, turns):
        n_hits = sum(hit for _, _, hit in turns)
        self.assertGreaterEqual(n_hits, 0.95 * len(turns))
        for name in self.fleet.replicas:
            share = sum(first == name for first, _, _ in turns) / len(turns)
            self.assertGreater(share, 0.2, f"{name} has {share:.0%} of the conversations")
        return n_hits


class Affinity(FleetTest):
    def test_second_turns_find_their_prefix(self):
        systems = [None, "You are terse.", text_of("system", 200)]
        turns = at_once(lambda i: self.two_turns(f"prefix {i}", system=systems[i % 3]), range(N_CONVERSATIONS))
        print(f"second turns that found their prefix: {self.check_affinity(turns)} of {len(turns)}")

    def test_second_turns_of_unrelated_keys_miss(self):
        """What the test above would see without affinity."""
        turns = at_once(lambda i: self.two_turns(f"control {i}", unrelated_key), range(N_CONVERSATIONS))
        self.assertLess(sum(hit for _, _, hit in turns), 0.8 * len(turns))

    def test_keys_of_clients_lead_to_one_replica(self):
        """A header, then prompt_cache_key, lead to one replica whatever the messages are."""
        for field, header in [("prompt_cache_key", None), (None, "X-Session-ID"), (None, "session_id"), (None, "x-session-affinity")]:
            for i in range(4):
                fields = {field: f"{field} {i}"} if field else {}
                headers = {header: f"{header} {i}"} if header else {}
                replies = [self.fleet.chat([{"role": "user", "content": text_of(j, 4)}], headers, max_tokens=1, **fields) for j in range(4)]
                self.assertEqual(len({reply.replica for reply in replies}), 1, (field, header))

    def test_conversations_of_other_apis_stay_at_their_replica(self):
        question = [{"type": "text", "text": "part"}]
        for path, first, second in [
                ("/v1/messages", {"messages": [{"role": "user", "content": [{**question[0], "cache_control": {"type": "ephemeral"}}]}]},
                 {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": "x"},
                               {"role": "user", "content": "y"}]}),
                ("/v1/responses", {"input": "question %d"},
                 {"input": [{"role": "user", "content": "question %d"}, {"role": "assistant", "content": "x"},
                            {"role": "user", "content": "y"}]}),
                ("/v1/completions", {"prompt": text_of(1)}, {"prompt": text_of(1) + " more"}),
                ("/api/chat", {"messages": [{"role": "user", "content": "ollama"}], "stream": False},
                 {"messages": [{"role": "user", "content": "ollama"}, {"role": "assistant", "content": "x"},
                               {"role": "user", "content": "y"}], "stream": False})]:
            limit = "max_output_tokens" if path == "/v1/responses" else "max_tokens"
            replies = [self.fleet.ask(path, {"model": "tiny", limit: 16, **body}) for body in (first, second)]
            self.assertEqual([reply.status for reply in replies], [200, 200], replies)
            self.assertEqual(replies[0].replica, replies[1].replica, path)

    def test_kept_responses_are_found_whatever_the_key(self):
        def continues(i):
            first = self.fleet.ask("/v1/responses", {"input": f"first {i}", "max_output_tokens": 16}, unrelated_key())
            response_id, item = first.json["id"], first.json["output"][0]["id"]
            self.assertTrue(response_id.startswith(f"resp_{first.replica}."), response_id)
            bodies = [{"input": "second", "previous_response_id": response_id, "max_output_tokens": 16},
                      {"input": [{"role": "user", "content": f"first {i}"}, {"type": "item_reference", "id": item},
                                 {"role": "user", "content": "second"}], "max_output_tokens": 16}]
            replies = [self.fleet.ask("/v1/responses", body, unrelated_key()) for body in bodies]
            path = f"/v1/responses/{response_id}"
            replies += [self.fleet.ask(f"{path}/input_items", None, unrelated_key(), "GET"), self.fleet.ask(path, None, None, "DELETE")]
            return [(reply.status, reply.replica == first.replica) for reply in replies]
        for got in at_once(continues, range(8)):
            self.assertEqual(got, [(200, True)] * 4)


class Loss(FleetTest):
    options = OPTIONS + SLOW

    def test_full_queue_sends_requests_to_the_other_replica(self):
        body = {"messages": [{"role": "user", "content": "one for all"}], "max_tokens": 60, "ignore_eos": True}
        replies = at_once(lambda _: self.fleet.chat(**body), range(40), n_threads=40)
        self.assertEqual({reply.status for reply in replies}, {200})
        self.assertEqual({reply.replica for reply in replies}, set(self.fleet.replicas))

    def test_client_that_disconnects_cancels_its_request(self):
        streams = [self.fleet.begin("/v1/completions", {"prompt": f"gone {i}", **stream_of(3000)}) for i in range(4)]
        for stream in streams:
            stream.connection.sock.close()
            stream.response.close()
        logs = [self.folder / f"{name}.err" for name in self.fleet.replicas]
        wait_until("all are cancelled", lambda: sum(log.read_text().count('"finish":"cancelled"') for log in logs) >= len(streams))

    def test_killed_replica_loses_only_its_running_requests(self):
        victim, other = self.fleet.replicas.values()
        owners = self.fleet.owners()
        streams = [self.fleet.begin("/v1/completions", {"prompt": f"stream {i}", **stream_of(400)}) for i in range(12)]
        self.assertEqual({stream.reply.replica for stream in streams}, set(self.fleet.replicas))
        victim.end(signal.SIGKILL)
        after = at_once(lambda i: self.fleet.chat([{"role": "user", "content": f"after {i}"}], max_tokens=4), range(24))
        replies = at_once(lambda stream: stream.finish(), streams, len(streams))
        self.fleet.restart(victim, owners)
        self.assertEqual([(reply.status, reply.replica) for reply in after], [(200, other.name)] * len(after))
        for reply in replies:
            is_on_victim = reply.replica == victim.name
            self.assertEqual(bool(reply.error), is_on_victim, reply.error)
            self.assertEqual("[DONE]" in reply.events, not is_on_victim)
        n_lost = sum(bool(reply.error) for reply in replies)
        print(f"killed: {n_lost} of {len(replies)} streams lost, {len(after)} new requests answered by the other")

    def test_killed_replica_is_an_error_of_the_api_where_no_response_has_begun(self):
        name = self.fleet.ask("/tokenize", {"content": "x"}, {"X-Session-ID": "whole"}).replica
        victim, owners = self.fleet.replicas[name], self.fleet.owners()
        with concurrent.futures.ThreadPoolExecutor(1) as thread:
            body = {"prompt": "not streamed", **stream_of(3000), "stream": False}
            lost = thread.submit(self.fleet.ask, "/v1/completions", body, {"X-Session-ID": "whole"})
            curl = subprocess.Popen(["curl", "-sN", f"http://127.0.0.1:{self.fleet.port}/v1/completions", "-H", "X-Session-ID: whole", "-d",
                                     '{"prompt": "streamed", "max_tokens": 3000, "ignore_eos": true, "stream": true}'],
                                    stdout=subprocess.PIPE, text=True)
            first_line = curl.stdout.readline()
            wait_until("both run", lambda: victim.ask("/health")["active_requests"] == 2)
            victim.end(signal.SIGKILL)
            reply = lost.result()
        rest = curl.communicate()[0]
        self.fleet.restart(victim, owners)
        self.assertEqual(reply.status, 502)
        self.assertEqual(reply.json["error"]["code"], "replica_lost")
        self.assertTrue(first_line.startswith("data: "), first_line)
        self.assertNotIn("[DONE]", rest)
        self.assertEqual(curl.returncode, 18, "curl's exit code for a partial response")

    def test_drained_replica_loses_no_request_and_comes_back(self):
        drained, owners = self.fleet.replicas["zinc-1"], self.fleet.owners()
        streams = [self.fleet.begin("/v1/completions", {"prompt": f"stream {i}", **stream_of(1000)}) for i in range(8)]
        self.assertIn(drained.name, {stream.reply.replica for stream in streams})
        has_ended = threading.Event()

        def ask_until_it_ends(client):
            replies = []
            while not has_ended.is_set() and len(replies) < 2000:
                replies.append(self.fleet.chat([{"role": "user", "content": f"{client} {len(replies)}"}], max_tokens=4))
                time.sleep(PAUSE_S)
            return replies

        with concurrent.futures.ThreadPoolExecutor(4 + len(streams)) as threads:
            clients = [threads.submit(ask_until_it_ends, i) for i in range(4)]
            readers = [threads.submit(stream.finish) for stream in streams]
            code = drained.end(signal.SIGTERM)
            has_ended.set()
            replies = [reply for client in clients for reply in client.result()]
            finished = [reader.result() for reader in readers]
        self.fleet.restart(drained, owners)
        self.assertEqual(code, 0)
        self.assertEqual([reply for reply in replies if not reply.is_complete], [])
        self.assertEqual([reply.error for reply in finished if "[DONE]" not in reply.events], [])
        n_served = sum(reply.replica == drained.name for reply in replies)
        self.assertGreater(n_served, 0, "none was sent to the replica: nothing could have been lost")
        print(f"drained: 0 of {len(replies)} requests lost, {n_served} of them answered by that replica")
        self.check_affinity(at_once(lambda i: self.two_turns(f"back {i}", n_words=10), range(N_CONVERSATIONS)))


class Haproxy(unittest.TestCase):
    def test_no_ready_replica_is_an_error_of_the_api(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="zinc-replicas-"))
        self.addCleanup(shutil.rmtree, folder)
        fleet = Fleet(ZINC, folder)
        self.addCleanup(fleet.stop)
        for replica in fleet.replicas.values():
            replica.port = free_port()  # where none listens
        fleet.is_ready = lambda: "Server replicas/zinc-1 is DOWN" in (folder / "haproxy.log").read_text()
        fleet.start_haproxy()
        reply = fleet.chat([{"role": "user", "content": "x"}])
        self.assertEqual((reply.status, reply.json["error"]["code"], reply.headers["retry-after"]), (503, "no_replica", "2"))
        self.assertEqual(fleet.ask("/ready", None, method="GET").status, 503)

    def test_shipped_configuration_is_valid_as_it_is(self):
        end = subprocess.run([HAPROXY, "-c", "-f", CONFIG], capture_output=True, text=True)
        self.assertEqual((end.returncode, end.stdout.strip()), (0, "Configuration file is valid"), end.stderr)
        self.assertNotIn("WARNING", end.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)

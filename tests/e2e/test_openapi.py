"""The OpenAPI document: valid for a validator of others, and true: what it names is routed, what answers has its shape."""
import json
import re

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

METHODS = {"get", "post", "put", "patch", "delete"}


@pytest.fixture(scope="module")
def doc(daemon):
    if daemon.driver == "peer":
        pytest.skip("cannot: the document is ours")
    r = daemon.get("/openapi.json")
    assert r.status == 200 and r.headers["Content-Type"] == "application/json"
    return r.json()


def operations(doc):
    for path, item in doc["paths"].items():
        for method, op in item.items():
            assert method in METHODS
            yield method, path, op


def test_valid(doc):
    OpenAPIV31SpecValidator(doc).validate()
    assert doc["info"]["version"] == "0.1.0"


def test_every_path_is_routed(daemon, doc):
    """No operation of the document is unknown to the router, whatever else it says to such a request."""
    n = 0
    for method, path, op in operations(doc):
        url = re.sub(r"\{port\}", "1", path)
        url = re.sub(r"\{[a-z]+\}", "none", url)
        r = daemon.request(method.upper(), url, {} if op.get("requestBody") else None)
        n += 1
        assert r.status not in (405, 307), (method, path, r)
        if r.status == 404:  # of the thing that was asked for, not of the path
            assert r.json()["code"] not in ("GENERAL::NOT_FOUND",), (method, path, r)
        if r.status >= 400:
            assert {"code", "message"} <= set(r.json()), (method, path, r)
            named = set(op["responses"])
            assert str(r.status) in named or "default" in named
    assert n > 80


def test_nothing_is_routed_that_is_not_in_it(daemon, doc):
    """Methods that the document does not have for a path are refused, and Allow names those it has."""
    for path, item in doc["paths"].items():
        url = re.sub(r"\{port\}", "1", path)
        url = re.sub(r"\{[a-z]+\}", "none", url)
        r = daemon.request("OPTIONS", url)
        assert r.status == 405, (path, r)
        allowed = {m.strip().lower() for m in r.headers["Allow"].split(",")}
        assert allowed == set(item), (path, allowed)


def check(schema, value, doc, where):
    """The few words of JSON Schema that the document uses; members that it does not name are errors."""
    if "$ref" in schema:
        schema = doc["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    kind = schema.get("type")
    if kind == "object" and "properties" in schema:
        assert isinstance(value, dict), where
        assert set(value) <= set(schema["properties"]), (where, set(value) - set(schema["properties"]))
        assert set(schema.get("required", ())) <= set(value), where
        for k, v in value.items():
            check(schema["properties"][k], v, doc, f"{where}.{k}")
    elif kind == "object":
        assert isinstance(value, dict), where
        for k, v in value.items():
            check(schema.get("additionalProperties", {}), v, doc, f"{where}.{k}")
    elif kind == "array":
        for i, v in enumerate(value):
            check(schema["items"], v, doc, f"{where}[{i}]")
    elif kind == "string":
        assert isinstance(value, str), where
        assert value in schema.get("enum", [value]), where
    elif kind == "integer":
        assert isinstance(value, int) and not isinstance(value, bool), where
    elif kind == "boolean":
        assert isinstance(value, bool), where


def test_answers_have_their_shape(daemon, doc):
    def ask(method, path, template, body=None):
        r = daemon.request(method, path, body)
        op = doc["paths"][template][method.lower()]
        if r.status == 501:  # not by this driver
            check(doc["components"]["schemas"]["Error"], r.json(), doc, path)
            return None
        want = op["responses"][str(r.status)]
        if r.body:
            check(want["content"]["application/json"]["schema"], r.json(), doc, f"{method} {path}")
        else:
            assert "content" not in want
        return r.json() if r.body else None

    box = "/v1/sandboxes/{id}"
    s = ask("POST", "/v1/sandboxes", "/v1/sandboxes", {
        "image": {"uri": daemon.image}, "entrypoint": ["sleep", "100"], "resourceLimits": {}, "timeout": 300,
        "metadata": {"a": "b"}, "extensions": {"opensandbox.extensions.x": "y"}})
    one = f"/v1/sandboxes/{s['id']}"
    try:
        ask("GET", one, box)
        ask("GET", "/v1/sandboxes?pageSize=5", "/v1/sandboxes")
        ask("PATCH", one + "/metadata", box + "/metadata", {"a": None})
        ask("POST", one + "/renew-expiration", box + "/renew-expiration", {"expiresAt": "2099-01-01T00:00:00Z"})
        for port in (44772, 18080, 3000):
            ask("GET", f"{one}/endpoints/{port}?use_server_proxy=true", box + "/endpoints/{port}")
        ask("GET", one + "/diagnostics/logs?scope=all", box + "/diagnostics/logs")
        ask("GET", one + "/diagnostics/events?scope=runtime", box + "/diagnostics/events")
        ask("POST", one + "/pause", box + "/pause")
        ask("POST", one + "/resume", box + "/resume")
        ask("GET", "/v1/capabilities", "/v1/capabilities")
        ask("GET", "/health", "/health")
        ask("GET", "/version", "/version")
        ask("GET", "/v1/images", "/v1/images")
        ask("POST", "/v1/metrics/events", "/v1/metrics/events",
            {"eventType": "sandbox.create", "createDurationMs": 1, "success": True})
    finally:
        ask("DELETE", one, box)


def test_the_page_needs_nothing_else(daemon):
    for path in ("/docs", "/redoc", "/docs/oauth2-redirect"):
        r = daemon.get(path)
        assert r.status == 200 and r.headers["Content-Type"].startswith("text/html")
        assert not re.search(r"https?://", r.body.decode())
    assert json.loads(daemon.get("/openapi.json").body)["openapi"].startswith("3.1")

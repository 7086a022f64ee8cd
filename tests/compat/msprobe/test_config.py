"""config.json and arguments: what they give, which wins, and what is said of a wrong one."""

import json

import pytest

from twintrace.compat.msprobe.config import Settings, settings_from
from twintrace.model.errors import UsageError

# msprobe's own config.json, of the documented generation and of 26.2.
OLD = {
    "task": "statistics", "dump_path": "/tmp/dump", "rank": [], "step": [], "level": "L1", "enable_dataloader": False,
    "statistics": {"scope": [], "list": [], "data_mode": ["all"], "summary_mode": "statistics"},
    "tensor": {"scope": [], "list": [], "data_mode": ["all"], "backward_input": [], "file_format": "npy"},
    "overflow_check": {"overflow_nums": 1},
    "run_ut": {"white_list": [], "black_list": [], "error_data_path": "./"},
    "grad_probe": {"grad_level": "L1", "param_list": [], "bounds": [-1, 0, 1]},
    "free_benchmark": {"scope": [], "list": []},
}  # fmt: skip
NEW = {
    "task": "statistics", "dump_path": "./dump_path", "rank": [], "step": [], "level": "L1", "extra_info": True,
    "async_dump": False, "precision": "high", "risk_level": "ALL",
    "statistics": {"scope": [], "list": [], "tensor_list": [], "data_mode": ["all"], "summary_mode": "md5"},
    "tensor": {"scope": [], "list": [], "data_mode": ["all"]},
    "acc_check": {"white_list": [], "black_list": [], "error_data_path": "./"},
}  # fmt: skip


@pytest.fixture
def write(tmp_path):
    def write(config):
        path = tmp_path / "config.json"
        path.write_text(config if isinstance(config, str) else json.dumps(config))
        return path

    return write


def test_nothing_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert settings_from() == Settings(tmp_path / "dump_path", task="statistics", level="L1")


@pytest.mark.parametrize("config", [OLD, NEW], ids=["old", "new"])
def test_the_tools_own_file(write, config):
    found = settings_from(str(write(config)))
    assert (found.task, found.level, found.steps, found.ranks, found.scope) == ("statistics", "L1", None, None, None)
    assert found.summary_mode == config["statistics"]["summary_mode"]


def test_arguments_win(write, tmp_path):
    path = write({"task": "statistics", "dump_path": "a", "level": "L0", "step": [1], "tensor": {"list": ["relu"]}})
    found = settings_from(path, task="tensor", dump_path=str(tmp_path / "b"), level="mix", step=[0, "3-5"])
    assert found == Settings(tmp_path / "b", "tensor", "mix", (0, 3, 4, 5), names=("relu",))


def test_each_field(write):
    section = {
        "scope": ["Functional.a.0.forward", "Torch.b.1.backward"],
        "list": ["conv", "name-regex(fc\\d)"],
        "data_mode": ["forward", "input"],
        "tensor_list": ["fc"],
    }
    found = settings_from(write({"task": "statistics", "rank": [0, "2-3"], "extra_info": False, "statistics": section}))
    assert found.ranks == (0, 2, 3)
    assert found.scope == tuple(section["scope"])
    assert found.names == tuple(section["list"])
    assert found.tensor_list == ("fc",)
    assert not found.extra_info


MODES = [
    (["all"], "fi fo bi bo"),
    ([], "fi fo bi bo"),
    (["forward"], "fi fo"),
    (["backward"], "bi bo"),
    (["input"], "fi bi"),
    (["output"], "fo bo"),
    (["forward", "output"], "fo"),
    (["backward", "input"], "bi"),
    (["forward", "backward"], "fi fo bi bo"),
]


@pytest.mark.parametrize(("mode", "expected"), MODES, ids=["+".join(mode) or "none" for mode, _ in MODES])
def test_data_mode(write, mode, expected):
    found = settings_from(write({"statistics": {"data_mode": mode}}))
    wanted = [
        direction[0] + end[0]
        for direction in ("forward", "backward")
        for end in ("input", "output")
        if found.wants(direction, end)
    ]
    assert wanted == expected.split()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("{", r"config\.json is not JSON"),
        ("[1]", "expected an object"),
        ({"task": "fly"}, "task: expected one of statistics, tensor, structure, got 'fly'"),
        ({"task": "overflow_check"}, "'overflow_check' is not offered here"),
        ({"level": "L2"}, "level: expected one of L0, L1, mix, debug, got 'L2'"),
        ({"step": 3}, "step: expected a list of numbers"),
        ({"step": [-1]}, "step: expected numbers from 0"),
        ({"step": [True]}, "step: expected numbers from 0"),
        ({"step": ["5-3"]}, "step: expected numbers from 0"),
        ({"rank": ["x"]}, "rank: expected numbers from 0"),
        ({"dump_path": 3}, "dump_path: expected the name"),
        ({"extra_info": 1}, "extra_info: expected true or false"),
        ({"statistics": []}, None),
        ({"statistics": [1]}, "statistics: expected an object"),
        ({"statistics": {"scope": ["a"]}}, "scope: expected the names of two records"),
        (
            {"statistics": {"scope": ["Torch.abs.0.forward", "a"]}},
            "scope: expected the whole name of a record, such as .*got 'a'",
        ),
        (
            {"level": "L0", "statistics": {"scope": ["Torch.abs.0.forward", "Torch.abs.1.forward"]}},
            "such as Module.fc1.Linear.forward.0, got 'Torch.abs.0.forward'",
        ),
        (
            {"level": "L1", "statistics": {"scope": ["Module.a.A.forward.0", "Module.b.B.forward.0"]}},
            "such as Functional.linear.0.forward, got 'Module.a.A.forward.0'",
        ),
        ({"dump_path": ""}, "dump_path: expected the name of a file or directory, got ''"),
        ({"dump_path": None}, "dump_path: expected the name of a file or directory, got None"),
        ({"statistics": {"list": "a"}}, "list: expected a list of names"),
        ({"statistics": {"list": ["name-regex(()"]}}, "is not a regular expression"),
        ({"statistics": {"data_mode": ["sideways"]}}, "data_mode: expected a list of all, forward"),
        ({"async_dump": "yes"}, "async_dump: expected true or false, got 'yes'"),
        ({"precision": "medium"}, "precision: expected one of low, high, got 'medium'"),
        ({"risk_level": "NONE"}, "risk_level: expected one of CORE, FOCUS, ALL, got 'NONE'"),
        ({"custom_op_namespaces": "npu"}, "custom_op_namespaces: expected a list of names"),
        ({"statistics": {"data_mode": ["all", "forward"]}}, "data_mode: 'all' stands alone"),
        (
            {"statistics": {"data_mode": ["forward", "backward", "input", "output", "input"]}},
            "data_mode: expected at most 4",
        ),
        (
            {"task": "tensor", "tensor": {"summary_mode": "sha"}},
            r"tensor\.summary_mode: expected one of statistics, md5, got 'sha'",
        ),
        ({"statistics": {"summary_mode": "sha"}}, "summary_mode: expected one of statistics, md5, got 'sha'"),
        ({"support_wrap_ops": "nowhere.yaml"}, r"nowhere\.yaml cannot be read"),
    ],
)
def test_a_wrong_file(write, config, message):
    path = write(config)
    if message is None:
        settings_from(path)
        return
    with pytest.raises(UsageError, match=message) as error:
        settings_from(path)
    assert str(path) in str(error.value) or "nowhere" in message


def test_a_wrong_argument(tmp_path):
    with pytest.raises(UsageError, match="task: expected one of"):
        settings_from(task="fly")
    with pytest.raises(UsageError, match="level: expected one of"):
        settings_from(level="L9")
    with pytest.raises(UsageError, match="step: expected a list"):
        settings_from(step=1)
    with pytest.raises(UsageError, match="cannot be read"):
        settings_from(tmp_path / "none.json")


ALLOWED = [
    ("functional: conv2d", "functional: expected a list of names"),
    ("- conv2d", "expected categories"),
    ("fonctional:\n  - conv2d", "unknown category 'fonctional'"),
    ("a: [", "is not YAML"),
]


@pytest.mark.parametrize(("text", "message"), ALLOWED)
def test_a_wrong_list_of_functions(write, tmp_path, text, message):
    (tmp_path / "ops.yaml").write_text(text)
    with pytest.raises(UsageError, match=message) as error:
        settings_from(write({"support_wrap_ops": "ops.yaml"}))
    assert "ops.yaml" in str(error.value)


def test_a_list_of_functions_lies_beside_its_file(write, tmp_path):
    (tmp_path / "ops.yaml").write_text("functional:\n  - conv2d\ntorch:\n  - linalg.norm\ntensor:\n")
    assert settings_from(write({"support_wrap_ops": "ops.yaml"})).allowed == {"Functional.conv2d", "Torch.norm"}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"acl_config": "x", "level": "L0"},
            r"config\.json: the field 'acl_config' means nothing here and is passed over",
        ),
        ({"_comment": "ours", "level": "L0"}, "the field '_comment' means nothing here"),
        ({"tusk": 1, "level": "L0"}, r"Did you mean 'task'\?"),
        (
            {"statistics": {"skope": []}, "level": "L0"},
            r"statistics\.the field 'skope' means nothing here.*Did you mean 'scope'",
        ),
    ],
)
def test_a_field_that_msprobe_passes_over_is_warned_about(write, config, message):
    with pytest.warns(UserWarning, match=message):
        found = settings_from(write(config))
    assert found.level == "L0"

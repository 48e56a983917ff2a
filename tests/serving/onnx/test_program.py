import pytest
import torch
from torch import Tensor, nn

from fedfeast.errors import InvalidInput
from fedfeast.serving.onnx.program import LEAST_OPSET, program_to_onnx
from fedfeast.serving.onnx.session import Session, require_opset


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.norm, self.out = nn.Embedding(5, 4), nn.LayerNorm(4), nn.Linear(4, 5)

    def forward(self, tokens: Tensor) -> Tensor:
        heads = self.norm(self.embedding(tokens))[:, None]
        mixed = nn.functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True)
        return torch.as_tensor(self.out(mixed[:, 0]))


class Sorting(nn.Module):
    def forward(self, numbers: Tensor) -> Tensor:
        return torch.as_tensor(torch.linalg.eigvalsh(numbers))


def exported(module: nn.Module, example: Tensor) -> torch.export.ExportedProgram:
    return torch.export.export(module.eval(), (example,), dynamic_shapes=({0: torch.export.Dim("batch")},))


def test_any_batch_gives_torchs_outputs_and_the_file_says_nothing_of_its_source() -> None:
    module = Attention()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.linspace(-1, 1, parameter.numel()).reshape(parameter.shape))
    program = exported(module, torch.zeros(2, 6, dtype=torch.int64))
    proto = program_to_onnx(program, LEAST_OPSET, ("inputs", "outputs"), {"name": "tiny"})
    assert (proto.opset_import[0].version, proto.producer_name) == (LEAST_OPSET, "fedfeast")
    assert [(entry.key, entry.value) for entry in proto.metadata_props] == [("name", "tiny")]
    assert b"test_program" not in proto.SerializeToString()
    again = program_to_onnx(exported(module, torch.zeros(2, 6, dtype=torch.int64)), LEAST_OPSET, ("inputs", "outputs"))
    assert again.graph == proto.graph
    session = Session(proto.SerializeToString())
    assert (session.input_shape, session.input_dtype) == ((6,), torch.int64)
    for number in (1, 5):
        tokens = torch.arange(6 * number).reshape(number, 6) % 5
        torch.testing.assert_close(session(tokens), module(tokens).detach(), rtol=1e-4, atol=1e-5)


def test_what_has_no_form_is_said() -> None:
    program = exported(Sorting(), torch.eye(3).repeat(2, 1, 1))
    with pytest.raises(InvalidInput, match=r"torch.onnx has no ONNX form for the network \(.*: extract it, or export"):
        program_to_onnx(program, LEAST_OPSET, ("inputs", "outputs"))


def test_opsets_that_torch_does_not_write_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"--opset 17: .* torch.onnx, which exports own networks, know 18 to \d+"):
        require_opset(17, LEAST_OPSET, LEAST_OPSET)

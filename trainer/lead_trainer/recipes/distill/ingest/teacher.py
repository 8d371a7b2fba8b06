"""Who labels a clip: Alpamayo-R1 where it is installed, or a scripted driver that needs no weights.

`Teacher` is the whole interface; `config.teacher` chooses. Frame and units are those of `label_files`.
"""

import hashlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from lead_trainer.errors import BadConfig
from lead_trainer.recipes.distill.config import EMBEDDING_WIDTH
from lead_trainer.recipes.distill.ingest.actions import fitted_speeds
from lead_trainer.recipes.distill.ingest.frame_files import Clip, Frames
from lead_trainer.recipes.distill.ingest.label_files import DT_S, FUTURE, History, Label, yaw_of

MODEL = "nvidia/Alpamayo-R1-10B"
EMBEDDER = "sentence-transformers/all-MiniLM-L6-v2"  # 384 wide
_GENTLE = 2.0  # m/s², no scripted acceleration is harder
_TURN = 0.05  # rad/s that count as a turn


@dataclass(frozen=True)
class Question:
    """What a teacher is asked about."""

    clip: Clip
    frames: Frames
    history: History


class Teacher(Protocol):
    """Labels clips."""

    def label(self, questions: Sequence[Question]) -> list[Label]:
        """Returns a label a question; may be called by several threads."""


def make_teacher(name: str) -> Teacher:
    """Returns the teacher `scripted` or `alpamayo_r1`; raises BadConfig where that is not installed."""
    return ScriptedTeacher() if name == "scripted" else AlpamayoTeacher()


class ScriptedTeacher:
    """Drives on as the history ends: constant turn rate and acceleration, never backwards; deterministic."""

    def label(self, questions: Sequence[Question]) -> list[Label]:
        """Returns a label a question."""
        return [self._label(question.history) for question in questions]

    def _label(self, history: History) -> Label:
        headings = np.unwrap(yaw_of(history.rotations.astype(np.float64)))
        speeds = fitted_speeds(history.xyz[:, :2], headings, DT_S)
        turn = float(np.diff(headings)[-5:].mean() / DT_S)
        pull = float(np.clip(np.polyfit(DT_S * np.arange(len(speeds)), speeds, 1)[0], -_GENTLE, _GENTLE))
        times = DT_S * np.arange(FUTURE + 1)
        speed = np.maximum(speeds[-1] + pull * times, 0.0)
        yaw = np.where(speed > 0, turn * times, 0.0)
        velocity = np.stack([speed * np.cos(yaw), speed * np.sin(yaw), np.zeros_like(yaw)], -1)
        xyz = np.cumsum(0.5 * DT_S * (velocity[1:] + velocity[:-1]), 0)
        text = _reason(turn, pull, float(speeds[-1]))
        return Label(xyz.astype(np.float32), yaw_rotations(yaw[1:]), text, text_embedding(text))


def _reason(turn: float, pull: float, speed: float) -> str:
    if speed < 0.5:
        return "Wait, because the car stands."
    way = "Keep the lane" if abs(turn) < _TURN else f"Turn {'left' if turn > 0 else 'right'} with the road"
    if abs(pull) < 0.3:
        return f"{way} at the same speed, because the way ahead is clear."
    return f"{way} and {'speed up' if pull > 0 else 'slow down'}, because the car has begun to do so."


def yaw_rotations(yaw: npt.NDArray[np.floating]) -> npt.NDArray[np.float32]:
    """Returns rotations about z, (T, 3, 3), of headings (T,) in radians."""
    turned = np.zeros((len(yaw), 3, 3), np.float32)
    turned[:, 0, 0] = turned[:, 1, 1] = np.cos(yaw)
    turned[:, 1, 0] = np.sin(yaw)
    turned[:, 0, 1] = -turned[:, 1, 0]
    turned[:, 2, 2] = 1.0
    return turned


def text_embedding(text: str) -> npt.NDArray[np.float32]:
    """Returns a unit vector (384,): the mean of a pseudo-random direction per word, so that similar texts are near."""
    words = text.lower().replace(",", " ").replace(".", " ").split()
    seeds = [int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "little") for word in words]
    total = np.sum([np.random.default_rng(seed).normal(size=EMBEDDING_WIDTH) for seed in seeds], axis=0)
    return np.asarray(total / np.linalg.norm(total), np.float32)


class AlpamayoTeacher:
    """Alpamayo-R1 (github.com/NVlabs/alpamayo, arXiv 2511.00088): about 24 GB of one GPU, and a user's own access.

    It reads its pictures from the data set at full size, by clip and t0, as its own inference does; the reduced frames
    of a question are for the student. Not run in our tests: its weights and data are gated.
    """

    def __init__(self) -> None:
        try:
            import physical_ai_av
            import torch
            from alpamayo_r1 import helper, load_physical_aiavdataset
            from alpamayo_r1.models.alpamayo_r1 import AlpamayoR1
            from sentence_transformers import SentenceTransformer
        except ImportError as error:
            raise BadConfig(
                f"teacher: found 'alpamayo_r1', but {error.name} is not installed in the trainer image; install "
                "alpamayo_r1, physical_ai_av and sentence-transformers, or set teacher=files and provide labels"
            ) from error
        if not torch.cuda.is_available():
            raise BadConfig("teacher: found 'alpamayo_r1', which needs a GPU of 24 GB; give the pods one")
        self._torch, self._helper, self._load = torch, helper, load_physical_aiavdataset.load_physical_aiavdataset
        self._clips: Any = physical_ai_av.PhysicalAIAVDatasetInterface()
        self._model: Any = AlpamayoR1.from_pretrained(MODEL, dtype=torch.bfloat16).to("cuda")
        self._processor: Any = helper.get_processor(self._model.tokenizer)
        self._embedder: Any = SentenceTransformer(EMBEDDER)
        self._lock = threading.Lock()

    def label(self, questions: Sequence[Question]) -> list[Label]:
        """Returns a label a question: one rollout each, all of them in one batch, seeded by the first clip."""
        with self._lock:
            return self._labels([question.clip for question in questions])

    def _labels(self, clips: Sequence[Clip]) -> list[Label]:
        data = [self._load(clip.clip_id, t0_us=clip.t0_us, avdi=self._clips) for clip in clips]
        tokens = self._processor.apply_chat_template(
            [self._helper.create_message(one["image_frames"].flatten(0, 1)) for one in data],
            tokenize=True,
            add_generation_prompt=False,
            continue_final_message=True,
            return_dict=True,
            return_tensors="pt",
        )
        poses = {key: self._torch.cat([one[key] for one in data]) for key in ("ego_history_xyz", "ego_history_rot")}
        inputs = self._helper.to_device({"tokenized_data": tokens, **poses}, "cuda")
        digest = hashlib.sha256(f"{clips[0].clip_id}@{clips[0].t0_us}".encode()).digest()
        self._torch.cuda.manual_seed_all(int.from_bytes(digest[:4], "little"))
        with self._torch.autocast("cuda", dtype=self._torch.bfloat16):
            xyz, rotations, extra = self._model.sample_trajectories_from_data_with_vlm_rollout(
                data=inputs, top_p=0.98, temperature=0.6, num_traj_samples=1, max_generation_length=256,
                return_extra=True,
            )  # fmt: skip
        texts = [str(text) for text in np.ravel(extra["cot"])]
        return [
            Label(*parts)
            for parts in zip(
                xyz.float().cpu().numpy().reshape(len(clips), FUTURE, 3),
                rotations.float().cpu().numpy().reshape(len(clips), FUTURE, 3, 3),
                texts,
                np.asarray(self._embedder.encode(texts, normalize_embeddings=True), np.float32),
                strict=True,
            )
        ]

"""InfoNCE (van den Oord et al. 2018): a student's embedding shall be nearer to its teacher's than to any other."""

import torch
from torch import distributed
from torch.nn import functional

SAME_TEXT = 1e-5  # distance of cosine from 1 within which two embeddings are one text's


def info_nce(student_BE: torch.Tensor, teacher_BE: torch.Tensor, temperature: float, *, gather: bool) -> torch.Tensor:
    """Returns the mean cross-entropy of finding one's own teacher embedding by cosine similarity / temperature.

    Two clips with the same reasoning have the same embedding; neither is a negative of the other.
    With `gather` the teachers' embeddings of every process are candidates; they carry no gradient, so nothing has to
    flow back between processes. Every process must have a batch of the same size.
    """
    student = functional.normalize(student_BE, dim=-1)
    own = torch.arange(len(student), device=student.device)
    candidates = teacher_BE
    if gather and distributed.is_initialized():
        everyone = [torch.empty_like(teacher_BE) for _ in range(distributed.get_world_size())]
        distributed.all_gather(everyone, teacher_BE.contiguous())
        candidates = torch.cat(everyone)
        own = own + distributed.get_rank() * len(student)
    teacher = functional.normalize(candidates, dim=-1)
    same = teacher[own] @ teacher.T > 1.0 - SAME_TEXT
    same[torch.arange(len(own), device=own.device), own] = False
    similarity = (student @ teacher.T / temperature).masked_fill(same, float("-inf"))
    return functional.cross_entropy(similarity, own)

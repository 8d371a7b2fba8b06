"""InfoNCE (van den Oord et al. 2018): a student's embedding shall be nearer to its teacher's than to any other."""

import torch
from torch import distributed
from torch.nn import functional


def info_nce(student_BE: torch.Tensor, teacher_BE: torch.Tensor, temperature: float, *, gather: bool) -> torch.Tensor:
    """Returns the mean cross-entropy of finding one's own teacher embedding by cosine similarity / temperature.

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
    similarity = student @ functional.normalize(candidates, dim=-1).T
    return functional.cross_entropy(similarity / temperature, own)

"""Shapes of the example world's things: convex polygons in an actor's own frame, with colour and semantic class.

Called by `scene.py`. A mesh lists its faces so that drawing them in order, back faces skipped, is right from outside.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np

from lead_trainer.example_worlds.lead.geometry import FloatArray

Colour = tuple[int, int, int]


@dataclass(frozen=True)
class Face:
    """A flat convex polygon (N, 3), counter-clockwise around its outward normal; colour is RGB."""

    points: FloatArray
    colour: Colour
    semantic: int
    glows: bool = False


_BOX_CORNERS = np.array([(x, y, z) for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], dtype=np.float64)
_BOX_FACES = ((0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (1, 5, 7, 3), (0, 2, 6, 4))
BACK, FRONT, LEFT, RIGHT, TOP, BOTTOM = range(6)


def _outward(points: FloatArray, centre: FloatArray) -> FloatArray:
    normal = np.cross(points[1] - points[0], points[2] - points[0])
    return points if float(normal @ (points.mean(axis=0) - centre)) > 0 else points[::-1]


def box(centre: FloatArray, half: FloatArray, colour: Colour, semantic: int, taper: float = 1.0) -> list[Face]:
    """Returns six faces; `taper` shrinks the top in length and, half as much, in width."""
    corners = _BOX_CORNERS * half
    top = corners[:, 2] > 0
    corners[top, 0] *= taper
    corners[top, 1] *= (1 + taper) / 2
    corners += centre
    return [Face(_outward(corners[list(face)], centre), colour, semantic) for face in _BOX_FACES]


def on_face(face: Face, u: tuple[float, float], v: tuple[float, float], colour: Colour, glows: bool = False) -> Face:
    """Returns a patch lying on a four-cornered face; u and v run from 0 to 1 along its first two edges."""
    a, b, c, d = face.points

    def at(s: float, t: float) -> FloatArray:
        mixed: FloatArray = (1 - s) * (1 - t) * a + s * (1 - t) * b + s * t * c + (1 - s) * t * d
        return mixed

    points = np.stack([at(u[0], v[0]), at(u[1], v[0]), at(u[1], v[1]), at(u[0], v[1])])
    return Face(points, colour, face.semantic, glows)


def _patch(
    face: Face, along: tuple[float, float], up: tuple[float, float], colour: Colour, glows: bool = False
) -> Face:
    """Returns a patch on an upright face: `along` runs to growing x + y, `up` to growing z."""
    first, last = face.points[1] - face.points[0], face.points[3] - face.points[0]
    u_is_up = abs(first[2]) > abs(last[2])
    upright, level = (first, last) if u_is_up else (last, first)
    up = up if upright[2] > 0 else (1 - up[1], 1 - up[0])
    along = along if level[0] + level[1] > 0 else (1 - along[1], 1 - along[0])
    return on_face(face, up, along, colour, glows) if u_is_up else on_face(face, along, up, colour, glows)


@cache
def ball(sides: int = 8) -> tuple[FloatArray, ...]:
    """Returns the triangles and quads of a faceted unit sphere."""
    rings = np.array([-np.pi / 2, -0.55, 0.25, 0.9, np.pi / 2])
    turn = np.linspace(0, 2 * np.pi, sides, endpoint=False)
    grid = np.stack(
        [np.stack([np.cos(r) * np.cos(turn), np.cos(r) * np.sin(turn), np.full(sides, np.sin(r))], 1) for r in rings]
    )
    faces = []
    for ring in range(len(rings) - 1):
        for k in range(sides):
            quad = np.stack(
                [grid[ring, k], grid[ring, (k + 1) % sides], grid[ring + 1, (k + 1) % sides], grid[ring + 1, k]]
            )
            quad = quad[[0, 2, 3]] if ring == 0 else (quad[:3] if ring == len(rings) - 2 else quad)
            faces.append(_outward(quad, np.zeros(3)))
    return tuple(faces)


def blob(centre: FloatArray, half: FloatArray, colour: Colour, semantic: int, sides: int = 8) -> list[Face]:
    """Returns a faceted ellipsoid."""
    return [Face(face * half + centre, colour, semantic) for face in ball(sides)]


def _v(*values: float) -> FloatArray:
    return np.array(values)


def vehicle(extent: tuple[float, float, float], colour: Colour, *, braking: bool, boxy: bool) -> list[Face]:
    """Returns a car or a van standing on z = 0, facing along x."""
    length, width, height = extent
    dark, glass, tyre = (28, 30, 34), (44, 56, 66), (22, 22, 24)
    sill = 0.16
    waist = 2 * height * (0.52 if boxy else 0.6)
    body = box(_v(0, 0, (waist + sill) / 2), _v(length, width, (waist - sill) / 2), colour, 1)
    roof = 2 * height
    middle, half = (-0.12 * length, 0.86 * length) if boxy else (-0.1 * length, 0.58 * length)
    cabin = box(
        _v(middle, 0, (waist + roof) / 2), _v(half, width * 0.9, (roof - waist) / 2), colour, 1, 0.9 if boxy else 0.72
    )
    faces = [
        Face(f.points, dark, 1)
        for f in box(_v(0, 0, sill / 2 + 0.02), _v(length * 0.97, width * 0.94, sill / 2), dark, 1)
    ]
    faces += body
    faces += cabin
    for side in (LEFT, RIGHT):
        for at in (0.16, 0.77):
            centre = _v((2 * at - 0.93) * length, (width + 0.01) * (1 if side == RIGHT else -1), 0.34)
            faces += [_disc(centre, 0.34, tyre), _disc(centre * _v(1, 1.002, 1), 0.17, (128, 130, 134))]
        faces.append(_patch(cabin[side], (0.05, 0.47), (0.1, 0.85), glass))
        faces.append(_patch(cabin[side], (0.53, 0.95), (0.1, 0.85), glass))
    faces += [_patch(cabin[end], (0.07, 0.93), (0.1, 0.88), glass) for end in (FRONT, BACK)]
    lamp = (255, 40, 30) if braking else (122, 20, 22)
    for span in ((0.03, 0.2), (0.8, 0.97)):
        faces.append(_patch(body[BACK], span, (0.55, 0.85), lamp, braking))
        faces.append(_patch(body[FRONT], span, (0.5, 0.8), (246, 244, 226), True))
    faces.append(_patch(body[BACK], (0.37, 0.63), (0.3, 0.55), (208, 206, 196)))
    faces.append(_patch(body[FRONT], (0.25, 0.75), (0.2, 0.5), dark))
    return faces


def _disc(centre: FloatArray, radius: float, colour: Colour) -> Face:
    """Returns an upright disc that faces away from the x axis."""
    turn = np.linspace(0, 2 * np.pi, 10, endpoint=False)
    ring = centre + radius * np.stack([np.cos(turn), np.zeros(10), np.sin(turn)], axis=1)
    return Face(_outward(ring, centre * _v(1, 0, 1)), colour, 1)


def walker(colour: Colour, stride: float) -> list[Face]:
    """Returns a person of 1.86 m; `stride` in -1..1 swings the legs."""
    skin, trousers = (206, 158, 128), (46, 52, 72)
    faces = []
    for side in (-0.1, 0.1):
        swing = 0.16 * stride * np.sign(side)
        faces += box(_v(swing, side, 0.42), _v(0.09, 0.08, 0.42), trousers, 4)
    for side in (-0.24, 0.24):
        faces += box(_v(-0.1 * stride * np.sign(side), side, 1.15), _v(0.07, 0.05, 0.3), colour, 4)
    faces += box(_v(0, 0, 1.18), _v(0.13, 0.2, 0.36), colour, 4)
    return faces + blob(_v(0, 0, 1.7), _v(0.12, 0.11, 0.16), skin, 4, 6)


def bicycle(colour: Colour, stride: float) -> list[Face]:
    """Returns a rider on a bicycle, 1.7 m high."""
    dark = (30, 30, 34)
    faces = []
    for at in (-0.52, 0.52):
        turn = np.linspace(0, 2 * np.pi, 12, endpoint=False)
        ring = np.stack([at + 0.33 * np.cos(turn), np.zeros(12), 0.33 + 0.33 * np.sin(turn)], axis=1)
        faces += [Face(ring + _v(0, -0.03, 0), dark, 9), Face(ring[::-1] + _v(0, 0.03, 0), dark, 9)]
    faces += box(_v(0, 0, 0.6), _v(0.42, 0.04, 0.07), colour, 9)
    for side in (-0.1, 0.1):
        faces += box(_v(0.06, side, 0.62 + 0.08 * stride * np.sign(side)), _v(0.13, 0.07, 0.3), (52, 54, 66), 9)
    faces += box(_v(0.05, 0, 1.12), _v(0.17, 0.19, 0.3), colour, 9)
    return faces + blob(_v(0.16, 0, 1.54), _v(0.13, 0.12, 0.16), (208, 206, 70), 9, 6)


def cone(semantic: int = 6) -> list[Face]:
    """Returns a traffic cone of 0.58 m with a white collar."""
    faces = box(_v(0, 0, 0.02), _v(0.17, 0.17, 0.02), (40, 40, 42), semantic)
    body = box(_v(0, 0, 0.31), _v(0.14, 0.14, 0.27), (232, 92, 24), semantic, 0.2)
    return faces + body + [_patch(body[side], (0.0, 1.0), (0.4, 0.62), (238, 236, 230)) for side in range(4)]


def warning(extent: tuple[float, float, float]) -> list[Face]:
    """Returns a striped board on a trailer."""
    length, width, height = extent
    trailer = box(_v(0, 0, 0.2), _v(length, width, 0.2), (58, 58, 62), 6)
    body = box(_v(0, 0, height + 0.2), _v(length * 0.3, width, height - 0.2), (232, 150, 36), 6)
    stripes = [
        _patch(body[side], (k / 7, (k + 1) / 7), (0.15, 0.85), (236, 234, 228))
        for side in (FRONT, BACK)
        for k in (1, 3, 5)
    ]
    return trailer + body + stripes


def building(extent: tuple[float, float, float], colour: Colour) -> list[Face]:
    """Returns a house with rows of windows."""
    length, depth, height = extent
    body = box(_v(0, 0, height), _v(length, depth, height), colour, 0)
    faces = list(body)
    storeys = max(1, int(height * 2 / 3.1))
    for side in (BACK, FRONT, LEFT, RIGHT):
        columns = max(1, int((length if side in (LEFT, RIGHT) else depth) * 2 / 2.9))
        for row in range(storeys):
            for column in range(columns):
                along = ((column + 0.28) / columns, (column + 0.72) / columns)
                up = ((row + 0.3) / storeys, (row + 0.78) / storeys)
                shade = (58, 68, 80) if (row * 7 + column * 3 + side) % 5 else (128, 132, 120)
                faces.append(_patch(body[side], along, up, shade))
    return faces


def tree(colour: Colour) -> list[Face]:
    """Returns a trunk with a crown of two blobs."""
    lighter = (min(255, colour[0] + 16), min(255, colour[1] + 18), min(255, colour[2] + 10))
    faces = box(_v(0, 0, 1.2), _v(0.17, 0.17, 1.2), (86, 66, 48), 0)
    faces += blob(_v(0, 0, 3.4), _v(1.7, 1.7, 1.35), colour, 0)
    return faces + blob(_v(0.1, 0.1, 4.6), _v(1.15, 1.15, 1.1), lighter, 0)


LAMP = {"Red": (255, 36, 30), "Yellow": (255, 200, 40), "Green": (40, 240, 110)}


def traffic_light(state: str) -> list[Face]:
    """Returns a pole with an arm to the left and a three-lamp head that faces against x."""
    grey = (74, 76, 80)
    faces = box(_v(0, 0, 2.75), _v(0.09, 0.09, 2.75), grey, 0)
    faces += box(_v(0, -2.6, 5.4), _v(0.06, 2.6, 0.06), grey, 0)
    for at, high in (((-0.2, -5.0), 4.85), ((-0.2, -0.05), 2.9)):
        head = box(_v(*at, high), _v(0.16, 0.24, 0.6), (34, 36, 38), 3)
        faces += head
        for number, name in enumerate(("Green", "Yellow", "Red")):
            lit = name == state
            red, green, blue = LAMP[name]
            colour = LAMP[name] if lit else (red // 5, green // 5, blue // 5)
            faces.append(_patch(head[BACK], (0.2, 0.8), (0.04 + number * 0.32, 0.31 + number * 0.32), colour, lit))
    return faces


def stop_sign() -> list[Face]:
    """Returns a pole with a red octagon that faces against x."""
    turn = np.linspace(0, 2 * np.pi, 8, endpoint=False) + np.pi / 8
    ring = np.stack([np.full(8, -0.1), 0.45 * np.cos(turn), 2.45 + 0.45 * np.sin(turn)], axis=1)
    inner = (ring - _v(0, 0, 2.45)) * _v(1, 0.86, 0.86) + _v(0, 0, 2.45)
    bar = np.array([(-0.1, -0.3, 2.33), (-0.1, 0.3, 2.33), (-0.1, 0.3, 2.57), (-0.1, -0.3, 2.57)])
    faces = box(_v(0, 0, 1.4), _v(0.05, 0.05, 1.4), (130, 132, 136), 0)
    for points, colour in ((ring, (236, 234, 230)), (inner, (190, 22, 30)), (bar, (240, 238, 234))):
        faces.append(Face(_outward(points, _v(1.0, 0.0, 2.45)), colour, 8))
    back = _outward(ring + _v(0.02, 0, 0), _v(-1.0, 0.0, 2.45))
    return [*faces, Face(back, (120, 122, 126), 8)]

"""Fits a line to points by gradient descent, in plain Python: stands for your training program."""

import argparse
import random

RANDOM = random.Random(7)
POINTS = [(x, 3.0 * x + 1.0) for x in (RANDOM.uniform(-1, 1) for _ in range(200))]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rate", type=float, default=0.3)
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args()
    slope = offset = 0.0
    for step in range(1, options.steps + 1):
        errors = [(x, slope * x + offset - y) for x, y in POINTS]
        slope -= options.rate * 2 * sum(error * x for x, error in errors) / len(POINTS)
        offset -= options.rate * 2 * sum(error for _, error in errors) / len(POINTS)
        if step % 20 == 0:
            print(f"step {step} loss {sum(error**2 for _, error in errors) / len(POINTS):.6f}", flush=True)


if __name__ == "__main__":
    main()

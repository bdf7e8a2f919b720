"""Packaging of tfr_moe: two framework lanes, chosen by the Python version, and optional extras."""

from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).parent
VERSION = "0.2.0.dev0"

# `beam/`, `serving/` and `tuning/` stand beside the package and install below it, so that nothing
# with such a generic name lands in anyone's site-packages.
OUTER = ("beam", "serving", "tuning")
PACKAGE_DIR = {f"tfr_moe.{name}": name for name in OUTER}
PACKAGES = find_packages(include=["tfr_moe", "tfr_moe.*"]) + [
    package
    for name in OUTER
    for package in (
        f"tfr_moe.{name}",
        *(f"tfr_moe.{name}.{sub}" for sub in find_packages(str(ROOT / name))),
    )
]

OLD = "python_version < '3.12'"
NEW = "python_version >= '3.12'"
REQUIRES = [
    f"tensorflow==2.15.1; {OLD}",
    f"tensorflow-ranking==0.5.5; {OLD}",
    f"tensorflow-serving-api==2.15.1; {OLD}",
    f"tensorflow>=2.16; {NEW}",
    f"tf-keras>=2.16; {NEW}",
    f"tensorflow-ranking==0.5.3; {NEW}",
    f"tensorflow-serving-api>=2.16; {NEW}",
    "tensorboard>=2.15",
    "numpy>=1.23.5",
    "pandas>=2.1",
    "pyarrow>=14",
    "scipy>=1.11",
    "google-crc32c>=1.5",
    "pydantic>=2.5",
    "PyYAML>=6",
    "typer>=0.12",
    "rich>=13",
]
EXTRAS = {
    "beam": ["apache-beam>=2.60"],
    "serving": [
        "grpcio>=1.60",
        # Each release asks for one range of protobuf; these take that of the lane's TensorFlow.
        f"grpcio-health-checking>=1.60,<1.63; {OLD}",
        f"grpcio-health-checking>=1.72,<1.82; {NEW}",
    ],
    "tuning": ["jinja2>=3.1", "keras-tuner>=1.4.7", "scikit-learn>=1.3"],
    "baselines": [
        "lightgbm>=4.3",
        "scikit-learn>=1.3",
        # The same package without 350 MB of CUDA libraries, which there is no build of for macOS.
        "xgboost-cpu>=2.1; sys_platform != 'darwin'",
        "xgboost>=2.1; sys_platform == 'darwin'",
    ],
    "report": ["jinja2>=3.1"],
    "gpu": ["tensorflow[and-cuda]"],
}
EXTRAS["dev"] = [
    "axe-core-python>=0.1",
    f"grpcio-tools>=1.60,<1.63; {OLD}",
    f"grpcio-tools>=1.72,<1.82; {NEW}",
    "hypothesis>=6.100",
    "ir-measures>=0.3.3",
    "kubernetes-validate>=1.31",
    "mypy>=1.10",
    "pytest>=8",
    "pytest-xdist>=3.5",
    "ruff>=0.6",
    "scikit-learn>=1.3",
    "statsmodels>=0.14",
    "types-PyYAML",
]
EXTRAS["docs"] = ["mkdocs-material>=9.5", "mkdocstrings[python]>=0.25"]
EXTRAS["all"] = sorted(
    {need for name, needs in EXTRAS.items() if name not in ("dev", "docs", "gpu") for need in needs}
)
CLASSIFIERS = [
    "Development Status :: 4 - Beta",
    "Intended Audience :: Developers",
    "Intended Audience :: Science/Research",
    "Operating System :: POSIX :: Linux",
    "Programming Language :: Python :: 3",
    *(f"Programming Language :: Python :: 3.{minor}" for minor in range(10, 14)),
    "Topic :: Scientific/Engineering :: Artificial Intelligence",
    "Typing :: Typed",
]

setup(
    name="tfr_moe",
    version=VERSION,
    description="Category-gated mixture-of-experts ranking for TensorFlow Ranking and Keras",
    long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    author="The tfr_moe developers",
    license="Apache-2.0",
    license_files=["LICENSE"],
    keywords="learning-to-rank ranking mixture-of-experts keras tensorflow-ranking e-commerce",
    classifiers=CLASSIFIERS,
    python_requires=">=3.10,<3.14",
    packages=PACKAGES,
    package_dir=PACKAGE_DIR,
    package_data={
        "tfr_moe": ["py.typed"],
        "tfr_moe.report": ["templates/*"],
        "tfr_moe.serving": ["protos/*"],
    },
    install_requires=REQUIRES,
    extras_require=EXTRAS,
    entry_points={"console_scripts": ["tfr-moe = tfr_moe.cli:main"]},
)

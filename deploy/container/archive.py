#!/usr/bin/env python3
"""Takes what differs from build to build out of a docker-archive: deploy/container/archive.py FROM TO

buildah writes the number and the host name of the container in which it has built into the configuration of the image.
"""
import hashlib
import io
import json
import sys
import tarfile

source, target = sys.argv[1:]


def text(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


with tarfile.open(source) as archive:
    [image] = json.load(archive.extractfile("manifest.json"))
    config = json.load(archive.extractfile(image["Config"]))
    layers = {name: archive.extractfile(name).read() for name in image["Layers"]}
for name in ("container", "container_config"):
    config.pop(name, None)
config["config"]["Hostname"] = ""
config = text(config)
image["Config"] = hashlib.sha256(config).hexdigest() + ".json"
files = {image["Config"]: config, "manifest.json": text([image]), **layers}
with tarfile.open(target, "w", format=tarfile.USTAR_FORMAT) as archive:
    for name, content in sorted(files.items()):
        member = tarfile.TarInfo(name)
        member.size, member.mode = len(content), 0o644
        archive.addfile(member, io.BytesIO(content))

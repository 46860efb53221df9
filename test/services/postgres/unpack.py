"""unpack.py WHEEL FOLDER: unpacks the server's archive, which lies inside the wheel, into FOLDER."""
import io
import sys
import tarfile
import zipfile

wheel, folder = sys.argv[1:]
with zipfile.ZipFile(wheel) as z:
    name = next(n for n in z.namelist() if n.endswith(".tar.gz"))
    archive = io.BytesIO(z.read(name))
with tarfile.open(fileobj=archive) as t:
    for m in t:
        # Every path starts with one folder named for the version.
        _, _, path = m.name.partition("/")
        if not path or path.startswith("include/"):
            continue
        m.name = path
        if m.islnk():
            m.linkname = m.linkname.partition("/")[2]
        t.extract(m, folder)

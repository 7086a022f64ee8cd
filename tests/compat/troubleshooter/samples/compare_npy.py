import os
import tempfile

import mindspore as ms
import troubleshooter as ts

data1 = ms.ops.randn((2, 3))
data2 = ms.ops.randn((3, 5))
cache_dir1 = tempfile.TemporaryDirectory(prefix="ta")
cache_dir2 = tempfile.TemporaryDirectory(prefix="tb")
path1 = cache_dir1.name
path2 = cache_dir2.name

ts.save(os.path.join(path1, "data"), [data1, data2])
ts.save(os.path.join(path2, "data"), [data1, data1])
# Use matching in numerical order
name_map = ts.migrator.get_name_map_list_by_number(path1, path2)
ts.migrator.compare_npy_dir(path1, path2, name_map_list=name_map)

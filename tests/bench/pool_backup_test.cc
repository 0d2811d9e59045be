// SPDX-License-Identifier: Apache-2.0
//
// What a benchmark calls again meets what it met at first.
#include "bench/pool_backup.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "backends.h"

namespace leapquant::conformance {
namespace {

using bench::changed_by_cycle;
using bench::changed_by_flush;
using bench::PoolBackup;
using Bytes = std::vector<unsigned char>;

class PoolBackupTest : public GatedBackendTest {
 protected:
  judge::FlushInputs inputs() const { return inputs_of(judge::Family::kRandom, geometry(3), 2); }
};

Bytes restored(const PoolBackup& backup, const MirroredPool& pool) {
  backup.restore();
  pool.download();
  return bytes_of(pool);
}

TEST_P(PoolBackupTest, EveryFlushMeetsTheSamePrograms) {
  const judge::FlushInputs programs = inputs();
  for (const lq_layout layout : {LQ_LAYOUT_COMPACT, LQ_LAYOUT_PADDED}) {
    const MirroredPool pool = filled_pool(context(), programs, 3, layout);
    const Bytes before = bytes_of(pool);
    const PoolBackup backup(changed_by_flush(pool.device()));
    pool.flush({1, 2}, programs);
    const Bytes after = bytes_of(pool);
    EXPECT_TRUE(before != after);
    for (int replay = 0; replay < 2; ++replay) {
      EXPECT_TRUE(before == restored(backup, pool));
      pool.flush({1, 2}, programs);
      EXPECT_TRUE(after == bytes_of(pool));
    }
  }
}

TEST_P(PoolBackupTest, ACycleMeetsThePoolAsItWas) {
  const MirroredPool pool = filled_pool(context(), inputs(), 3);
  const Bytes before = bytes_of(pool);
  const PoolBackup backup(changed_by_cycle(pool.device()));
  for (const auto member : kPoolOwners) {
    const lq_tensor& tensor = pool.host().*member;
    if (tensor.data != nullptr) std::memset(tensor.data, 0x5A, device::tensor_bytes(tensor));
  }
  pool.upload();
  EXPECT_TRUE(before == restored(backup, pool));
}

LQ_FOR_ALL_BACKENDS_AND_GATES(PoolBackupTest);

}  // namespace
}  // namespace leapquant::conformance

// SPDX-License-Identifier: Apache-2.0
//
// Verification through the public interface, for every backend of the build.
#include "judge/verify.h"

#include "fixture.h"

namespace leapquant::judge {
namespace {

TEST(Verify, EveryBackendOfThisMachinePassesEveryFamily) {
  for (const lq_backend_info& backend : backends()) {
    if (backend.targets[0] == '\0') continue;  // its device is missing
    const Context context(backend.name);
    for (const Family family : all_families()) {
      const Result<Judgement> judgement = verify_flush(context, {geometry_of(12), family, 4, 11, 2, ""});
      ASSERT_TRUE(judgement.ok()) << judgement.status().message();
      EXPECT_TRUE(judgement.value().passes())
          << backend.name << ", " << family_name(family) << ", program " << judgement.value().worst_program;
      EXPECT_TRUE(judgement.value().finite);
    }
  }
}

TEST(Verify, EveryRankPasses) {
  const Context context;
  for (const int32_t rank : {1, 2, 8}) {
    const Result<Judgement> judgement = verify_flush(context, {geometry_of(9, rank), Family::kStructured, 3, 1, 2, ""});
    ASSERT_TRUE(judgement.ok()) << judgement.status().message();
    EXPECT_TRUE(judgement.value().passes()) << "rank " << rank;
  }
}

TEST(Verify, TheLibrarysReferenceIsTheJudgesReference) {
  const FlushInputs inputs = draw(Family::kStructured, 1, 12);
  const Result<CheckpointTensors> result = flush(Context("ref"), inputs);
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result.value().codes, reference_flush<float>(inputs).codes);
  EXPECT_EQ(result.value().s_k, reference_flush<float>(inputs).s_k);
}

TEST(Verify, FiguresRepeat) {
  const FamilyRequest request{geometry_of(12), Family::kRandom, 2, 5, 2, ""};
  const Context context;
  EXPECT_EQ(verify_flush(context, request).value().worst_ratio, verify_flush(context, request).value().worst_ratio);
}

TEST(Verify, AGeometryThatTheBackendLacksIsRefusedByName) {
  const Result<Judgement> judgement = verify_flush(Context(), {geometry_of(4, 3), Family::kRandom, 1, 0, 1, ""});
  ASSERT_FALSE(judgement.ok());
  EXPECT_NE(judgement.status().message().find("rank"), std::string::npos) << judgement.status().message();
}

}  // namespace
}  // namespace leapquant::judge

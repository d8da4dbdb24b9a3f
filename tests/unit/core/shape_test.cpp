#include "espalier/shape.hpp"

#include <gtest/gtest.h>

#include "espalier/tensor.hpp"

namespace espalier {
namespace {

TEST(Shape, CountsRowsColumnsAndElements) {
  const Shape matrix{2, 3};
  EXPECT_EQ(matrix.rank(), 2);
  EXPECT_EQ(matrix.elements(), 6);
  EXPECT_EQ(matrix.rows(), 2);
  EXPECT_EQ(matrix.cols(), 3);
  const Shape vector{5};
  EXPECT_EQ(vector.rows(), 1);
  EXPECT_EQ(vector.cols(), 5);
  const Shape cube{2, 3, 4};
  EXPECT_EQ(cube.rows(), 2);
  EXPECT_EQ(cube.cols(), 12);
  EXPECT_EQ(Shape{}.elements(), 1);
  EXPECT_EQ((Shape{0, 3}).cols(), 0);
}

TEST(Shape, ComparesAndPrints) {
  EXPECT_EQ((Shape{2, 3}), (Shape{2, 3}));
  EXPECT_FALSE((Shape{2, 3}) == (Shape{3, 2}));
  EXPECT_FALSE((Shape{6}) == (Shape{2, 3}));
  EXPECT_FALSE((Shape{2}) == (Shape{2, 0}));
  EXPECT_EQ(to_string(Shape{2, 3}), "[2, 3]");
  EXPECT_EQ(to_string(Shape{}), "[]");
}

TEST(ShapeDeathTest, RefusesAFifthDimension) { EXPECT_DEATH((Shape{1, 2, 3, 4, 5}), "kMaxRank"); }

TEST(View, PartsLieWhereTheyShould) {
  float data[4 * 10] = {};
  const View view{data, 4, 6, 10, DType::f32};
  EXPECT_FALSE(view.contiguous());
  EXPECT_EQ(view.elements(), 24);
  EXPECT_EQ(view.bytes(), 96u);
  EXPECT_EQ(view.row<float>(2), data + 20);
  EXPECT_EQ(view.at(2, 3), reinterpret_cast<std::byte*>(data + 23));
  const View part = view.row_range(1, 3).col_range(2, 5);
  EXPECT_EQ(part.data, data + 12);
  EXPECT_EQ(part.rows, 2);
  EXPECT_EQ(part.cols, 3);
  EXPECT_EQ(part.row_stride, 10);
  const View whole = View::matrix(data, 4, 10, DType::f32);
  EXPECT_TRUE(whole.contiguous());
  EXPECT_EQ(whole.flat().cols, 40);
  EXPECT_EQ(whole.flat_range(7, 9).data, data + 7);
  EXPECT_TRUE(View{}.empty());
  EXPECT_FALSE(static_cast<bool>(View{}));
}

}  // namespace
}  // namespace espalier

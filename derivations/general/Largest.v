(* The bounds by which the search for the largest terms proves its answers (symcircuits/search): the pairwise bound, the
   bound from second moments, the bound of a spectral norm by traces, and that of pairs of paths for scores.  Sizes are
   Euclidean norms, and most is said of their squares, so that no root is needed.  Rounding is not part of it.

   Heads are labels, `heads l` those of layer l.  Head f reads Y_f, one row for each token, before its pattern A f, and
   writes A_f Y_f O_f; of what an earlier head g writes it reads D_f A_g Y_g O_g V_f, with D_f = diag_mx (scale f) the
   scales of its norm.  Of a source u it reads `start u f`; the sources of f are those that enter the stream before it,
   and those that enter inside it (biases of values). *)

From mathcomp Require Import all_ssreflect all_algebra.
From Circuits Require Import Heads.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

(* Sums of squares, and the inequality of Cauchy and Schwarz, without roots. *)
Section Squares.

Variable K : realDomainType.

Definition squares m n (X : 'M[K]_(m, n)) : K := \sum_i \sum_j X i j ^+ 2.

Lemma squares_positive m n (X : 'M[K]_(m, n)) : 0 <= squares X.
Proof. by apply: sumr_ge0 => i _; apply: sumr_ge0 => j _; apply: sqr_ge0. Qed.

Lemma squares_trace m n (X : 'M[K]_(m, n)) : squares X = \tr (X *m X^T).
Proof. by apply: eq_bigr => i _; rewrite mxE; apply: eq_bigr => j _; rewrite mxE expr2. Qed.

Lemma squares_turned m n (X : 'M[K]_(m, n)) : squares X^T = squares X.
Proof. by rewrite /squares exchange_big; apply: eq_bigr => i _; apply: eq_bigr => j _; rewrite mxE. Qed.

Lemma cauchy I (r : seq I) (a b : I -> K) :
  (\sum_(i <- r) a i * b i) ^+ 2 <= (\sum_(i <- r) a i ^+ 2) * (\sum_(i <- r) b i ^+ 2).
Proof.
have : 0 <= \sum_(i <- r) \sum_(j <- r) (a i * b j - a j * b i) ^+ 2.
  by apply: sumr_ge0 => i _; apply: sumr_ge0 => j _; apply: sqr_ge0.
have expanded i j : (a i * b j - a j * b i) ^+ 2
                    = a i ^+ 2 * b j ^+ 2 + b i ^+ 2 * a j ^+ 2 - ((a i * b i) * (a j * b j)) *+ 2.
  rewrite sqrrB !exprMn addrAC [a j ^+ 2 * _]mulrC; congr (_ - _ *+ 2).
  by rewrite mulrACA [b j * _]mulrC mulrACA.
under eq_bigr => i _ do under eq_bigr => j _ do rewrite expanded.
under eq_bigr => i _ do rewrite sumrB big_split /= sumrMnl -!mulr_sumr.
rewrite sumrB big_split /= sumrMnl -!mulr_suml -expr2.
rewrite (mulrC (\sum_(i <- r) b i ^+ 2)) -mulr2n -mulrnBl.
by rewrite pmulrn_lge0 // subr_ge0.
Qed.

Lemma squares_of_product m n p (X : 'M[K]_(m, n)) (Y : 'M[K]_(n, p)) : squares (X *m Y) <= squares X * squares Y.
Proof.
rewrite -[squares Y]squares_turned /squares big_distrlr /=; apply: ler_sum => i _; apply: ler_sum => j _.
rewrite mxE; apply: le_trans (cauchy _ _ _) _; rewrite le_eqVlt; apply/orP; left; apply/eqP.
by congr (_ * _); apply: eq_bigr => l _; rewrite mxE.
Qed.

(* Scores are pairs of paths: queries Q of one and keys N of the other, all entries or those that a mask leaves (of one
   entry they are a row each).  So no pair of paths is larger than the largest of each side allow. *)
Definition masked n (allowed : rel 'I_n) (X : 'M[K]_n) : 'M[K]_n := \matrix_(i, j) if allowed i j then X i j else 0.

Theorem pair_bound n k (allowed : rel 'I_n) (Q N : 'M[K]_(n, k)) :
  squares (masked allowed (Q *m N^T)) <= squares Q * squares N.
Proof.
apply: (@le_trans _ _ (squares (Q *m N^T))); last by rewrite -[squares N]squares_turned; apply: squares_of_product.
apply: ler_sum => i _; apply: ler_sum => j _; rewrite [X in X ^+ 2 <= _]mxE.
by case: ifP => // _; rewrite expr0n sqr_ge0.
Qed.

(* The largest factor by which a matrix C enlarges a row, its spectral norm, is at most c where c^(2m) is at least the
   trace of (C C^T)^m.  Here m is a power of two: C C^T is squared again and again. *)
Definition squared n (G : 'M[K]_n) := G *m G.

Lemma traces_of_powers a b (C : 'M[K]_(a, b)) (x : 'rV[K]_a) i :
  squares (x *m C) ^+ (2 ^ i) <= \tr (iter i (@squared a) (C *m C^T)) * squares x ^+ (2 ^ i).
Proof.
elim: i b C => [|i IH] b C.
  by rewrite !expr1 -squares_trace mulrC; apply: squares_of_product.
have once : squares (x *m C) ^+ 2 <= squares (x *m (C *m C^T)) * squares x.
  have -> : squares (x *m C) = (x *m (C *m C^T) *m x^T) 0 0.
    by rewrite squares_trace /mxtrace big_ord1 trmx_mul !mulmxA.
  rewrite mxE (eq_bigr (fun l => (x *m (C *m C^T)) 0 l * x 0 l)) => [|l _]; last by rewrite [x^T _ _]mxE.
  by rewrite /squares !big_ord1; apply: cauchy.
rewrite expnS [X in X <= _]exprM iterSr.
apply: (@le_trans _ _ ((squares (x *m (C *m C^T)) * squares x) ^+ (2 ^ i))).
  by apply: ler_expn2r once; rewrite nnegrE ?sqr_ge0 // mulr_ge0 ?squares_positive.
have IHm := IH _ (C *m C^T); rewrite (trmx_mul C) trmxK in IHm.
rewrite exprMn; apply: le_trans (ler_wpmul2r _ IHm) _; first by rewrite exprn_ge0 ?squares_positive.
by rewrite -mulrA -exprD addnn -mul2n.
Qed.

Theorem spectral_bound a b (C : 'M[K]_(a, b)) (c : K) i :
  0 <= c -> \tr (iter i (@squared a) (C *m C^T)) <= c ^+ (2 * 2 ^ i) ->
  forall x : 'rV[K]_a, squares (x *m C) <= c ^+ 2 * squares x.
Proof.
move=> c0 trace x; rewrite -(@ler_pexpn2r _ (2 ^ i)) ?expn_gt0 ?nnegrE ?mulr_ge0 ?sqr_ge0 ?squares_positive //.
apply: le_trans (traces_of_powers C x i) _; rewrite exprMn -exprM.
by apply: ler_wpmul2r trace; rewrite exprn_ge0 ?squares_positive.
Qed.

(* It is the same trace where C^T C is squared, which may be the smaller one. *)
Theorem trace_of_the_smaller a b (C : 'M[K]_(a, b)) m :
  \tr (iter m (@squared a) (C *m C^T)) = \tr (iter m (@squared b) (C^T *m C)).
Proof.
suff [E [-> ->]] : exists E : 'M[K]_(b, a),
    iter m (@squared a) (C *m C^T) = C *m E /\ iter m (@squared b) (C^T *m C) = E *m C.
  by rewrite mxtrace_mulC.
elim: m => [|m [E [left right]]]; first by exists C^T.
by exists (E *m C *m E); rewrite /= left right /squared !mulmxA.
Qed.

End Squares.

(* Where there are roots, there is the Euclidean norm. *)
Lemma euclidean_norm (K : rcfType) n (x : 'rV[K]_n) :
  0 <= Num.sqrt (squares x) /\ Num.sqrt (squares x) ^+ 2 = squares x.
Proof. by rewrite sqrtr_ge0 sqr_sqrtr ?squares_positive. Qed.

(* The paths into a head, and what it reads of each. *)
Section Paths.

Variable K : realDomainType.
Variables (n d k : nat) (T U : eqType).                       (* the labels of heads and of sources *)
Variable heads : nat -> seq T.                                (* of each layer *)
Variables (A : T -> 'M[K]_n) (O : T -> 'M[K]_(k, d)) (V : T -> 'M[K]_(d, k)) (scale : T -> 'rV[K]_n).
Variables (sources : T -> seq U) (start : U -> T -> 'M[K]_(n, k)).

(* What f reads of what g writes where g read Y. *)
Definition read_from g f (Y : 'M[K]_(n, k)) : 'M[K]_(n, k) := diag_mx (scale f) *m (A g *m Y *m O g) *m V f.

(* A path into f is a source and the heads after it, the last head first. *)
Fixpoint read_by u (p : seq T) f : 'M[K]_(n, k) := if p is g :: p' then read_from g f (read_by u p' g) else start u f.

(* The paths into f whose heads are in the layers below l. *)
Fixpoint into l f : seq (U * seq T) :=
  if l is l'.+1 then into l' f ++ [seq (x.1, g :: x.2) | g <- heads l', x <- into l' g]
  else [seq (u, [::]) | u <- sources f].

Lemma sum_over_into (W : zmodType) l f (P : pred (U * seq T)) (F : U * seq T -> W) :
  \sum_(x <- into l f | P x) F x
  = \sum_(u <- sources f | P (u, [::])) F (u, [::])
    + \sum_(0 <= l' < l) \sum_(g <- heads l') \sum_(x <- into l' g | P (x.1, g :: x.2)) F (x.1, g :: x.2).
Proof.
elim: l => [|l IH] /=; first by rewrite big_map big_geq // addr0.
rewrite big_cat /= IH big_nat_recr //= addrA; congr (_ + _).
by rewrite big_mkcond big_allpairs_dep /=; apply: eq_bigr => g _; rewrite -big_mkcond.
Qed.

(* They are all that it reads: the values of the forward pass, head by head, are the sums over them. *)
Theorem paths_into_add_up (values : T -> 'M[K]_(n, k)) :
  (forall l f, f \in heads l ->
     values f = \sum_(u <- sources f) start u f + \sum_(0 <= l' < l) \sum_(g <- heads l') read_from g f (values g)) ->
  forall l f, f \in heads l -> values f = \sum_(x <- into l f) read_by x.1 x.2 f.
Proof.
move=> forward l; elim/ltn_ind: l => l IH f f_in; rewrite (forward _ _ f_in) sum_over_into; congr (_ + _).
apply: eq_big_nat => l' /= below; apply: eq_big_seq => g g_in.
rewrite (IH _ below _ g_in) /read_from mulmx_sumr !mulmx_suml mulmx_sumr mulmx_suml.
by apply: eq_bigr => x _; rewrite !mulmxA.
Qed.

(* A suffix of heads reads L X R of the stream X: of what f writes L A_f Y_f O_f R, and for every head more, before
   those that are there, two products. *)
Definition suffix_reads r m (L : 'M[K]_(r, n)) (R : 'M[K]_(d, m)) f (Y : 'M[K]_(n, k)) : 'M[K]_(r, m) :=
  L *m A f *m Y *m (O f *m R).

Theorem suffix_grows r m (L : 'M[K]_(r, n)) (R : 'M[K]_(d, m)) g f (Y : 'M[K]_(n, k)) :
  suffix_reads L R f (read_from g f Y) = suffix_reads (L *m A f *m diag_mx (scale f)) (V f *m (O f *m R)) g Y.
Proof. by rewrite /suffix_reads /read_from !mulmxA. Qed.

Lemma row_scaled (s : 'rV[K]_n) (X : 'M[K]_(n, k)) t : row t (diag_mx s *m X) = s 0 t *: row t X.
Proof. by rewrite mul_diag_mx; apply/rowP => j; rewrite !mxE. Qed.

Lemma path_into l f x :
  x \in into l f ->
  x.1 \in sources f /\ x.2 = [::]
  \/ exists l' g p, [/\ (l' < l)%N, g \in heads l', (x.1, p) \in into l' g & x.2 = g :: p].
Proof.
elim: l => [|l IH] /=; first by move=> /mapP [u u_in ->]; left.
rewrite mem_cat => /orP [/IH [[u_in p0] | [l' [g [p [below g_in y_in p0]]]]] | /allpairsPdep [g [y [g_in y_in ->]]]].
- by left.
- by right; exists l', g, p; split=> //; apply: ltnW.
by right; exists l, g, y.2; split=> //=; rewrite -surjective_pairing.
Qed.

(* Paths are told apart by marks (their order, and which heads that count they take): q0 of a source, `grown` by every
   head.  A selection is of paths whose marks are wanted. *)
Variables (Q : finType) (q0 : U -> Q) (grown : Q -> T -> Q).

Fixpoint mark_of u (p : seq T) f : Q := grown (if p is g :: p' then mark_of u p' g else q0 u) f.

(* The pairwise bound.  beta q f t bounds row t of what f reads of every path of mark q: it bounds that of every source,
   and what an earlier head g gives where it bounds what g reads; c g f is at least the spectral norm of O_g V_f.
   `size_of` is the Euclidean norm, sigma at least the spectral norm of O_f R, and b the largest of the marks wanted. *)
Section Pairwise.

Variable size_of : 'rV[K]_k -> K.
Hypothesis size_positive : forall x, 0 <= size_of x.
Hypothesis size_squared : forall x, size_of x ^+ 2 = squares x.

Variables (c : T -> T -> K) (beta : Q -> T -> 'I_n -> K).
Hypothesis c_positive : forall g f, 0 <= c g f.
Hypothesis c_bounds : forall g f (x : 'rV[K]_k), squares (x *m (O g *m V f)) <= c g f ^+ 2 * squares x.
Hypothesis beta_of_source : forall f u t, u \in sources f -> size_of (row t (start u f)) <= beta (grown (q0 u) f) f t.
Hypothesis beta_of_head : forall l' l g f q t, (l' < l)%N -> g \in heads l' -> f \in heads l ->
  `|scale f 0 t| * (c g f * \sum_s `|A g t s| * beta q g s) <= beta (grown q f) f t.

Lemma size_le (a : K) x : 0 <= a -> squares x <= a ^+ 2 -> size_of x <= a.
Proof. by move=> a0; rewrite -size_squared ler_sqr // nnegrE. Qed.

Lemma size_scales a x : size_of (a *: x) = `|a| * size_of x.
Proof.
apply/eqP; rewrite -(@eqr_expn2 _ 2) ?mulr_ge0 // exprMn !size_squared real_normK ?num_real //; apply/eqP.
by rewrite /squares !big_ord1 mulr_sumr; apply: eq_bigr => j _; rewrite mxE exprMn.
Qed.

Lemma size_adds x y : size_of (x + y) <= size_of x + size_of y.
Proof.
apply: size_le; first exact: addr_ge0.
rewrite sqrrD !size_squared /squares !big_ord1.
have -> : \sum_j (x + y) 0 j ^+ 2 = \sum_j x 0 j ^+ 2 + (\sum_j x 0 j * y 0 j) *+ 2 + \sum_j y 0 j ^+ 2.
  by rewrite -sumrMnl -!big_split; apply: eq_bigr => j _; rewrite mxE sqrrD.
rewrite ler_add2r ler_add2l ler_muln2r /=; apply: le_trans (ler_norm _) _.
rewrite -ler_sqr ?nnegrE ?mulr_ge0 // real_normK ?num_real // exprMn !size_squared /squares !big_ord1.
exact: cauchy.
Qed.

Lemma size_of_sum I (r : seq I) (F : I -> 'rV[K]_k) : size_of (\sum_(i <- r) F i) <= \sum_(i <- r) size_of (F i).
Proof.
elim: r => [|i r IH]; first by rewrite !big_nil -(scale0r 0) size_scales normr0 mul0r.
by rewrite !big_cons; apply: le_trans (size_adds _ _) _; rewrite ler_add2l.
Qed.

(* A row of a product is a combination of rows. *)
Lemma size_of_mixed (v : 'rV[K]_n) (b B : 'I_n -> K) (Y : 'M[K]_(n, k)) :
  (forall s, size_of (row s Y) <= B s) -> (forall s, `|v 0 s| <= b s) -> size_of (v *m Y) <= \sum_s b s * B s.
Proof.
move=> YB vb; rewrite mulmx_sum_row; apply: le_trans (size_of_sum _ _) _; apply: ler_sum => s _.
by rewrite size_scales; apply: ler_pmul.
Qed.

Theorem beta_bounds_every_path l f x t :
  f \in heads l -> x \in into l f -> size_of (row t (read_by x.1 x.2 f)) <= beta (mark_of x.1 x.2 f) f t.
Proof.
case: x => u p; elim/ltn_ind: l => l IH in u p f t *.
move=> f_in /path_into /= [[u_in ->] | [l' [g [q [below g_in q_in ->]]]]]; first exact: beta_of_source.
rewrite /= /read_from -!mulmxA row_scaled size_scales.
apply: le_trans (beta_of_head _ t below g_in f_in); apply: ler_wpmul2l => //.
apply: (@le_trans _ _ (c g f * size_of (row t (A g *m read_by u q g)))).
  apply: size_le; rewrite ?mulr_ge0 // exprMn size_squared; apply: le_trans (c_bounds g f _).
  by rewrite -row_mul !mulmxA.
apply: ler_wpmul2l => //; rewrite row_mul; apply: size_of_mixed => s; last by rewrite mxE.
exact: (IH _ below).
Qed.

Theorem suffix_bounds_every_term r m (L : 'M[K]_(r, n)) (R : 'M[K]_(d, m)) (sigma : K) l f
    (wanted : pred Q) (b : 'I_n -> K) x :
  (forall y : 'rV[K]_k, squares (y *m (O f *m R)) <= sigma ^+ 2 * squares y) ->
  (forall q t, wanted q -> beta q f t <= b t) ->
  f \in heads l -> x \in into l f -> wanted (mark_of x.1 x.2 f) ->
  squares (suffix_reads L R f (read_by x.1 x.2 f))
  <= sigma ^+ 2 * \sum_i (\sum_t (\sum_s `|L i s| * `|A f s t|) * b t) ^+ 2.
Proof.
move=> sigmaP b_P f_in x_in x_wanted; rewrite mulr_sumr; apply: ler_sum => i _.
have -> : \sum_j suffix_reads L R f (read_by x.1 x.2 f) i j ^+ 2
          = squares (row i (L *m A f) *m read_by x.1 x.2 f *m (O f *m R)).
  by rewrite /squares big_ord1; apply: eq_bigr => j _; rewrite -!row_mul [in RHS]mxE.
apply: le_trans (sigmaP _) _; rewrite -size_squared; apply: ler_wpmul2l; first exact: sqr_ge0.
have small : size_of (row i (L *m A f) *m read_by x.1 x.2 f) <= \sum_t (\sum_s `|L i s| * `|A f s t|) * b t.
  apply: size_of_mixed => t; first exact: le_trans (beta_bounds_every_path t f_in x_in) (b_P _ t x_wanted).
  rewrite !mxE; apply: le_trans (ler_norm_sum _ _ _) _; by apply: ler_sum => s _; rewrite normrM.
by rewrite ler_sqr ?nnegrE // (le_trans _ small).
Qed.

End Pairwise.

(* The bound from second moments.  The sum over the paths of a mark of Z_t a * Z_s b, with Z what f reads after its
   pattern, is known without a list: it goes from head to head as Z does, on both sides. *)
Section SecondMoments.

Local Notation moment := ('I_n -> 'I_n -> 'M[K]_k).

Definition outer (Z : 'M[K]_(n, k)) : moment := fun t s => (row t Z)^T *m row s Z.
Definition linked g f (M : moment) : moment := fun t s =>
  (scale f 0 t * scale f 0 s) *: ((O g *m V f)^T *m M t s *m (O g *m V f)).
Definition mixed f (M : moment) : moment := fun t s => \sum_t' \sum_s' (A f t t' * A f s s') *: M t' s'.

(* <L^T L (x) R_f R_f^T, M>, with R_f = O_f R. *)
Definition paired r m (L : 'M[K]_(r, n)) (R : 'M[K]_(d, m)) f (M : moment) : K :=
  \sum_t \sum_s (L^T *m L) t s * \tr ((O f *m R) *m (O f *m R)^T *m M t s).

Variable moments : Q -> T -> moment.
Hypothesis moments_from_below : forall l q f t s, f \in heads l ->
  moments q f t s
  = mixed f (fun t' s' =>
      \sum_(u <- sources f | grown (q0 u) f == q) outer (start u f) t' s'
      + \sum_(q' | grown q' f == q) \sum_(0 <= l' < l) \sum_(g <- heads l') linked g f (moments q' g) t' s') t s.

Lemma mixed_outer f Y t s : mixed f (outer Y) t s = outer (A f *m Y) t s.
Proof.
rewrite /outer !row_mul !mulmx_sum_row [X in _ = X *m _]linear_sum /= mulmx_suml; apply: eq_bigr => t' _.
rewrite mulmx_sumr; apply: eq_bigr => s' _.
by rewrite [X in _ = X *m _]linearZ /= -scalemxAl -scalemxAr scalerA !mxE.
Qed.

Lemma linked_outer g f Y t s :
  linked g f (outer (A g *m Y)) t s = outer (read_from g f Y) t s.
Proof.
rewrite /linked /outer /read_from -!mulmxA !row_scaled [X in _ = X *m _]linearZ /= -scalemxAl -scalemxAr scalerA.
congr (_ *: _).
by rewrite [X in X *m _ = _]trmx_mul !mulmxA; rewrite !row_mul !trmx_mul !mulmxA.
Qed.

Lemma mixed_sum f I (r : seq I) P (M : I -> moment) t s :
  mixed f (fun t' s' => \sum_(i <- r | P i) M i t' s') t s = \sum_(i <- r | P i) mixed f (M i) t s.
Proof.
rewrite /mixed [RHS]exchange_big; apply: eq_bigr => t' _; rewrite [RHS]exchange_big; apply: eq_bigr => s' _.
by rewrite scaler_sumr.
Qed.

Theorem moments_are_sums_over_paths l q f t s :
  f \in heads l ->
  moments q f t s = \sum_(x <- into l f | mark_of x.1 x.2 f == q) outer (A f *m read_by x.1 x.2 f) t s.
Proof.
elim/ltn_ind: l => l IH in q f t s * => f_in; rewrite (moments_from_below _ _ _ f_in).
under [RHS]eq_bigr do rewrite -mixed_outer; rewrite -mixed_sum.
apply: eq_bigr => t' _; apply: eq_bigr => s' _; congr (_ *: _); rewrite sum_over_into; congr (_ + _).
rewrite exchange_big; apply: eq_big_nat => l' /= below; rewrite exchange_big; apply: eq_big_seq => g g_in /=.
rewrite (partition_big (fun x => mark_of x.1 x.2 g) (fun q' => grown q' f == q)) //=; apply: eq_bigr => q' /eqP q'q.
rewrite /linked (IH _ below _ _ _ _ g_in) mulmx_sumr mulmx_suml scaler_sumr.
rewrite [RHS](eq_bigl (fun x => mark_of x.1 x.2 g == q')) => [|x]; last first.
  by rewrite andbC; case: eqP => // ->; rewrite q'q eqxx.
by apply: eq_bigr => x _; rewrite -linked_outer.
Qed.

Lemma paired_outer r m (L : 'M[K]_(r, n)) (R : 'M[K]_(d, m)) f Z :
  paired L R f (outer Z) = squares (L *m Z *m (O f *m R)).
Proof.
rewrite squares_trace; set B := O f *m R.
have -> : \tr (L *m Z *m B *m (L *m Z *m B)^T) = \tr (L^T *m L *m (Z *m B *m B^T *m Z^T)).
  by rewrite [RHS]mxtrace_mulC !trmx_mul -!mulmxA [LHS]mxtrace_mulC -!mulmxA.
apply: eq_bigr => t _; rewrite mxE; apply: eq_bigr => s _; congr (_ * _); rewrite /outer.
rewrite mulmxA mxtrace_mulC !mulmxA /mxtrace big_ord1 -!row_mul.
by rewrite [LHS]mxE [LHS]mxE [RHS]mxE; apply: eq_bigr => j _; rewrite !mxE.
Qed.

Lemma paired_sum r m (L : 'M[K]_(r, n)) (R : 'M[K]_(d, m)) f I (s : seq I) P (M : I -> moment) :
  paired L R f (fun t' s' => \sum_(i <- s | P i) M i t' s') = \sum_(i <- s | P i) paired L R f (M i).
Proof.
rewrite /paired [RHS]exchange_big; apply: eq_bigr => t' _; rewrite [RHS]exchange_big; apply: eq_bigr => s' _.
by rewrite -mulr_sumr mulmx_sumr raddf_sum.
Qed.

Theorem mass_is_the_sum_of_squares r m (L : 'M[K]_(r, n)) (R : 'M[K]_(d, m)) l f (wanted : pred Q) :
  f \in heads l ->
  \sum_(q | wanted q) paired L R f (moments q f)
  = \sum_(x <- into l f | wanted (mark_of x.1 x.2 f)) squares (suffix_reads L R f (read_by x.1 x.2 f)).
Proof.
move=> f_in; rewrite (partition_big (fun x => mark_of x.1 x.2 f) wanted) //=; apply: eq_bigr => q q_wanted.
rewrite (eq_bigl (fun x => mark_of x.1 x.2 f == q)) => [|x]; last by rewrite andbC; case: eqP => // ->.
rewrite /suffix_reads; under [RHS]eq_bigr do rewrite -[X in squares (X *m _)]mulmxA -paired_outer; rewrite -paired_sum.
by apply: eq_bigr => t _; apply: eq_bigr => s _; rewrite (moments_are_sums_over_paths _ _ _ f_in).
Qed.

Theorem mass_bounds_every_term r m (L : 'M[K]_(r, n)) (R : 'M[K]_(d, m)) l f (wanted : pred Q) x :
  f \in heads l -> x \in into l f -> wanted (mark_of x.1 x.2 f) ->
  squares (suffix_reads L R f (read_by x.1 x.2 f)) <= \sum_(q | wanted q) paired L R f (moments q f).
Proof.
move=> f_in x_in x_wanted; rewrite (mass_is_the_sum_of_squares _ _ _ f_in) -big_filter.
rewrite (big_rem x) ?mem_filter ?x_wanted //= ler_addl; apply: sumr_ge0 => y _; exact: squares_positive.
Qed.

End SecondMoments.

End Paths.

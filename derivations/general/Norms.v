(* Frozen norms.

   With its scale held fixed a layer norm is a two-sided map  X |-> D X G^T : D is a diagonal n x n matrix, the
   scale of each token, and G the gain and the centring, d x d.  Nothing below uses that D is diagonal. *)

From mathcomp Require Import all_ssreflect all_algebra.
From Circuits Require Import Heads Paths.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import GRing.Theory.
Local Open Scope ring_scope.

Section Norms.

Variable R : comRingType.
Variables n d : nat.

Local Notation head := (head R n d).
Local Notation stream_type := 'M[R]_(n, d).

(* A norm is such a pair (D, G); a layer with a norm is its norm and its heads, which read the normed stream. *)
Definition norm := head.
Local Notation normed_layer_type := (norm * seq head)%type.

Implicit Types (X : stream_type) (N : norm) (layers : seq normed_layer_type).

(* A head that reads the normed stream is a head: D joins the pattern on the source side, A D,
   and the gain joins the reading side of W_OV, W G. *)
Definition fold_norm N (h : head) : head := (h.1 *m N.1, h.2 *m N.2).

Theorem norm_folds_into_head N h X :
  h.1 *m (N.1 *m X *m N.2^T) *m h.2^T = act (fold_norm N h) X.
Proof. by rewrite /act /= trmx_mul !mulmxA. Qed.

(* Centring and gain: X C^T diag(g), each token with its own scale, is the norm (D, diag(g) C). *)
Theorem centring_and_gain_fold (D : 'M[R]_n) (C : 'M[R]_d) (g : 'rV[R]_d) X :
  D *m (X *m C^T) *m diag_mx g = act (D, diag_mx g *m C) X.
Proof. by rewrite /act /= trmx_mul tr_diag_mx !mulmxA. Qed.

Definition normed_layer (l : normed_layer_type) X : stream_type :=
  X + \sum_(h <- l.2) act h (act l.1 X).

Fixpoint normed_stream layers X : stream_type :=
  if layers is l :: rest then normed_stream rest (normed_layer l X) else X.

(* The layers with their norms folded in. *)
Definition fold_layers layers : seq (seq head) := [seq [seq fold_norm l.1 h | h <- l.2] | l <- layers].

Theorem norms_fold layers X : normed_stream layers X = stream (fold_layers layers) X.
Proof.
elim: layers X => [|l rest IH] X //=.
rewrite IH /normed_layer /layer big_map; congr (stream _ (_ + _)).
by apply: eq_bigr => h _; rewrite -norm_folds_into_head.
Qed.

(* So the stream is the sum over paths of folded heads. *)
Theorem normed_stream_is_sum_over_paths layers X :
  normed_stream layers X
  = \sum_(p <- paths (fold_layers layers)) (virtual_head p).1 *m X *m (virtual_head p).2^T.
Proof. by rewrite norms_fold stream_is_sum_over_paths. Qed.

(* The final norm stands on the left of every term, its gain at the unembedding. *)
Theorem normed_logits_are_sum_over_paths layers (F : norm) v_in v_out
    (t : 'M[R]_(n, v_in)) (W_E : 'M[R]_(d, v_in)) (W_U : 'M[R]_(v_out, d)) :
  (F.1 *m normed_stream layers (t *m W_E^T) *m F.2^T) *m W_U^T
  = \sum_(p <- paths (fold_layers layers))
      F.1 *m (virtual_head p).1 *m t *m (W_U *m F.2 *m (virtual_head p).2 *m W_E)^T.
Proof.
rewrite normed_stream_is_sum_over_paths mulmx_sumr !mulmx_suml; apply: eq_bigr => p _.
by rewrite !trmx_mul !mulmxA.
Qed.

(* The scores of a head that reads the stream through the norm (D, G): D on the left of the query path and on the
   right of the key path, and the gain on both sides of W_QK. *)
Theorem normed_scores_are_double_sum layers N X (W_QK : 'M[R]_d) :
  let normed := N.1 *m normed_stream layers X *m N.2^T in
  normed *m W_QK *m normed^T
  = \sum_(p <- paths (fold_layers layers)) \sum_(q <- paths (fold_layers layers))
      N.1 *m (virtual_head p).1 *m X *m (virtual_head p).2^T *m (N.2^T *m W_QK *m N.2)
        *m (virtual_head q).2 *m X^T *m (virtual_head q).1^T *m N.1^T.
Proof.
move=> normed.
have -> : normed *m W_QK *m normed^T
          = N.1 *m (stream (fold_layers layers) X *m (N.2^T *m W_QK *m N.2)
                      *m (stream (fold_layers layers) X)^T) *m N.1^T.
  by rewrite /normed norms_fold !trmx_mul trmxK !mulmxA.
rewrite scores_are_double_sum mulmx_sumr mulmx_suml; apply: eq_bigr => p _.
rewrite mulmx_sumr mulmx_suml; apply: eq_bigr => q _.
by rewrite !mulmxA.
Qed.

End Norms.

(* On which side a norm stands: D, diagonal, commutes with a pattern exactly where the pattern joins only tokens of one
   scale.  Entry (i, j) of A D - D A is  A_ij (s_j - s_i). *)
Theorem norm_commutes_where_scales_agree (R : comRingType) n (A : 'M[R]_n) (s : 'rV[R]_n) :
  A *m diag_mx s = diag_mx s *m A <-> forall i j, A i j * (s 0 j - s 0 i) = 0.
Proof.
split=> [/matrixP same i j | zero].
  by move: (same i j); rewrite mul_mx_diag mul_diag_mx !mxE mulrBr [s 0 i * _]mulrC => ->; rewrite subrr.
apply/matrixP => i j; rewrite mul_mx_diag mul_diag_mx !mxE [s 0 i * _]mulrC; apply/eqP.
by rewrite -subr_eq0 -mulrBr zero.
Qed.

(* So the side matters: wherever two tokens have different scales there is a causal pattern, whose rows sum to one, with
   which D does not commute (both tokens attend to the first). *)
Theorem norm_side_matters (R : comRingType) (a b : R) :
  a != b ->
  exists A : 'M[R]_2, [/\ causal A, rows_sum_to_one A &
    let D := diag_mx (\row_(i < 2) if i == ord0 then a else b) in A *m D != D *m A].
Proof.
move=> ab; exists (\matrix_(i, j) (j == ord0)%:R); split.
- by apply/causalP => i j ij; rewrite mxE; case: eqP ij => // ->; rewrite ltn0.
- apply/eqP/matrixP => i j; rewrite !mxE (bigD1 ord0) //= big1 => [|k /negPf k0]; rewrite !mxE ?k0 ?mul0r //.
  by rewrite mul1r addr0.
move=> D; apply/eqP => /norm_commutes_where_scales_agree /(_ ord_max ord0) /eqP.
by rewrite !mxE /= mul1r subr_eq0 (negPf ab).
Qed.
